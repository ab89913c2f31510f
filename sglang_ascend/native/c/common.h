/* What every kernel file shares: vectors of floats, work sharing, exp. */
#ifndef SGLANG_ASCEND_COMMON_H
#define SGLANG_ASCEND_COMMON_H

#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define INLINE static inline __attribute__((always_inline))

/* GCC's vector extension: one register on x86, two of NEON on aarch64, without intrinsics. */
typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4), may_alias));

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE vec splat(float value) { return value - (vec){0}; }

/* Keeps the compiler from loading a value again for each of its uses: loads are what is scarce. */
INLINE vec in_register(vec value) {
#ifdef __AVX__
    __asm__("" : "+v"(value));
#endif
    return value;
}

#ifdef __AVX__
INLINE __m256 eight_lanes(vec v) {
#ifdef __AVX512F__
    __m256 low = _mm512_castps512_ps256((__m512)v);
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)v), 1));
    return _mm256_add_ps(low, high);
#else
    return (__m256)v;
#endif
}
#endif

INLINE float sum_lanes(vec v) {
#ifdef __AVX__
    __m256 eight = eight_lanes(v);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}

/* b where it is larger, a elsewhere and where they do not compare. */
INLINE vec larger(vec a, vec b) {
    ivec more = b > a;
    return (vec)(((ivec)b & more) | ((ivec)a & ~more));
}

INLINE float largest_lane(vec v, float least) {
    for (int lane = 0; lane < LANES; lane++) least = v[lane] > least ? v[lane] : least;
    return least;
}

#ifdef __AVX__
/* The sum of both halves of a, then that of b. */
INLINE vec halves(vec a, vec b) {
#ifdef __AVX512F__
    return (vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0x44) +
           (vec)_mm512_shuffle_f32x4((__m512)a, (__m512)b, 0xee);
#else
    return (vec)_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x20) +
           (vec)_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x31);
#endif
}

/* Four lanes for each of up to two vectors (four with AVX-512): the sum of its own fours. */
INLINE vec fours(const vec *v, const int count) {
    vec ab = halves(count > 0 ? v[0] : splat(0), count > 1 ? v[1] : splat(0));
#ifdef __AVX512F__
    vec cd = halves(count > 2 ? v[2] : splat(0), count > 3 ? v[3] : splat(0));
    return (vec)_mm512_shuffle_f32x4((__m512)ab, (__m512)cd, 0x88) +
           (vec)_mm512_shuffle_f32x4((__m512)ab, (__m512)cd, 0xdd);
#else
    return ab;
#endif
}
#endif

/* sums[i] = sum_lanes(v[i]) in every bit, with a third of the shuffles, for up to 4 vectors, or 8
 * with AVX-512. */
INLINE void sum_lanes_of(const vec *v, float *sums, const int count) {
#ifdef __AVX512F__
    if (count > 1) {
        __m512 a = (__m512)fours(v, count), b = (__m512)fours(v + 4, count - 4);
        __m512 two = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xee));
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
        _mm512_mask_storeu_ps(sums, (1 << count) - 1, _mm512_permutexvar_ps(order, one));
        return;
    }
#elif defined(__AVX__)
    if (count > 1) {
        __m256 a = (__m256)fours(v, count), b = (__m256)fours(v + 2, count - 2);
        __m256 two = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0xee));
        __m128 all = _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
        for (int i = 0; i < count; i++) sums[i] = all[i];
        return;
    }
#endif
    for (int i = 0; i < count; i++) sums[i] = sum_lanes(v[i]);
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
