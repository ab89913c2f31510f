/* Tile of the INT8 product with AVX-512 or AVX VNNI: four products of a lane at once, exact.
 *
 * vpdpbusd multiplies unsigned by signed bytes and wraps at 32 bits, so rows are taken as x + 128
 * and 128 times the sum of the weights, kept behind each block, is subtracted: what wrapped comes
 * back. */
#define GROUP 4
typedef uint8_t element;

INLINE element widened(int8_t x) { return (uint8_t)x ^ 0x80; }

#ifdef __AVX512VNNI__ /* 32 registers, else 16 */
#define TILE 8
#define TILE_BLOCKS 2
#define PARTS 1 /* registers that hold the sums of a block */
typedef __m512i lanes;
#define LOAD(from) _mm512_loadu_si512(from)
#define STORE(to, value) _mm512_storeu_si512(to, value)
#define ALL(value) _mm512_set1_epi32(value)
#define MINUS(a, b) _mm512_sub_epi32(a, b)
#define ADD_PRODUCTS(sum, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w))
#else
#define TILE 4
#define TILE_BLOCKS 1
#define PARTS 2
typedef __m256i lanes;
#define LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define STORE(to, value) _mm256_storeu_si256((__m256i *)(to), value)
#define ALL(value) _mm256_set1_epi32(value)
#define MINUS(a, b) _mm256_sub_epi32(a, b)
#define ADD_PRODUCTS(sum, x, w) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w))
#endif

/* sums[r][n] of `rows` rows and `blocks` neighbouring blocks, each a stream of its own; what is at
 * `next` is fetched meanwhile, `pace` bytes of each block a group. */
INLINE void tile_sums(const element *x, int64_t x_stride, const int8_t *w, int64_t block_bytes,
                      int64_t groups, const int8_t *next, int64_t pace,
                      int32_t sums[][WIDEST * OUTS], const int rows, const int blocks) {
    lanes acc[TILE][PARTS * WIDEST];
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < PARTS * blocks; n++) acc[r][n] = ALL(0);
    for (int64_t g = 0; g < groups; g++, next += pace) {
        for (int n = 0; n < blocks && rows > 1; n++) FETCH(next + n * block_bytes);
        lanes part[PARTS * WIDEST];
        for (int n = 0; n < PARTS * blocks; n++)
            part[n] = LOAD(w + n / PARTS * block_bytes + (g * PARTS + n % PARTS) * sizeof(lanes));
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * x_stride + GROUP * g, sizeof four);
            for (int n = 0; n < PARTS * blocks; n++) ADD_PRODUCTS(acc[r][n], ALL(four), part[n]);
        }
    }
    for (int n = 0; n < PARTS * blocks; n++) {
        const int8_t *behind = w + n / PARTS * block_bytes + groups * GROUP * OUTS;
        lanes excess = LOAD(behind + n % PARTS * sizeof(lanes));
        for (int r = 0; r < rows; r++)
            STORE((char *)sums[r] + n * sizeof(lanes), MINUS(acc[r][n], excess));
    }
}
