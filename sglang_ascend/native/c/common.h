/* What every kernel file shares: vectors of eight floats, work sharing, exp. */
#ifndef SGLANG_ASCEND_COMMON_H
#define SGLANG_ASCEND_COMMON_H

#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#define LANES 8
#define INLINE static inline __attribute__((always_inline))

/* GCC's vector extension: AVX on x86, two NEON registers on aarch64, without intrinsics. */
typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4), may_alias));

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE vec splat(float value) {
    return (vec){value, value, value, value, value, value, value, value};
}

/* Keeps the compiler from loading a value again for each of its uses: loads are what is scarce. */
INLINE vec in_register(vec value) {
#ifdef __AVX__
    __asm__("" : "+x"(value));
#endif
    return value;
}

INLINE float sum_lanes(vec v) {
#ifdef __AVX__
    __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}

/* exp(x) for x <= 88, to about two units in the last place; 0 below -87.
 * Cody and Waite's reduction to |r| <= ln(2) / 2 and a Taylor polynomial of degree 7. */
INLINE vec exp_lanes(vec x) {
    ivec tiny = x < splat(-87.0f);
    x = (vec)(((ivec)x & ~tiny) | ((ivec)splat(-87.0f) & tiny));
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vec rounded = x * splat(1.44269504088896341f) + magic;
    ivec power = ((ivec)rounded - (ivec)magic + 127) << 23;
    vec k = rounded - magic;
    vec r = x - k * splat(0.693359375f);
    r = r + k * splat(2.12194440e-4f);
    vec p = splat(1.0f / 5040);
    p = p * r + splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    vec result = p * (vec)power;
    return (vec)((ivec)result & ~tiny);
}

/* Run work items 0..items-1 in any order on as many threads as torch uses. `cost` is the
 * number of elementary operations of all items: too few are not worth waking a thread for. */
typedef void (*work)(const void *arguments, int64_t item);
void share(work run, const void *arguments, int64_t items, double cost);

#endif
