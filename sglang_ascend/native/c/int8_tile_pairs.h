/* Tile of the INT8 product for any machine, best with AVX2: pairs of products summed in 32 bits.
 *
 * vpmaddwd takes operands widened to 16 bits first, so nothing can saturate, unlike the 8-bit
 * multiply-add of AVX2, whose sums of two products end at 32767. */
#define GROUP 2 /* products that one lane sums at once */
#define TILE 4  /* rows that share one pass over a block: with more, sums leave the registers */
#define TILE_BLOCKS 1
typedef int16_t element;

INLINE element widened(int8_t x) { return x; }

/* sums[r][n] of `rows` rows and `blocks` neighbouring blocks, each a stream of its own; what is at
 * `next` is fetched meanwhile, `pace` bytes of each block a group. */
INLINE void tile_sums(const element *x, int64_t x_stride, const int8_t *w, int64_t block_bytes,
                      int64_t groups, const int8_t *next, int64_t pace,
                      int32_t sums[][WIDEST * OUTS], const int rows, const int blocks) {
#ifdef __AVX2__
    __m256i acc[TILE][2 * WIDEST];
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < 2 * blocks; n++) acc[r][n] = _mm256_setzero_si256();
    for (int64_t g = 0; g < groups; g++, w += GROUP * OUTS, next += pace) {
        for (int n = 0; n < blocks && rows > 1; n++) FETCH(next + n * block_bytes);
        __m256i part[2 * WIDEST];
        for (int n = 0; n < 2 * blocks; n++) {
            const int8_t *half = w + n / 2 * block_bytes + n % 2 * OUTS;
            part[n] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)half));
        }
        for (int r = 0; r < rows; r++) {
            int32_t both;
            memcpy(&both, x + r * x_stride + GROUP * g, sizeof both);
            __m256i pair = _mm256_set1_epi32(both);
            for (int n = 0; n < 2 * blocks; n++)
                acc[r][n] = _mm256_add_epi32(acc[r][n], _mm256_madd_epi16(pair, part[n]));
        }
    }
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < 2 * blocks; n++)
            _mm256_storeu_si256((__m256i *)(sums[r] + n * OUTS / 2), acc[r][n]);
#else
    for (int r = 0; r < rows; r++) memset(sums[r], 0, sizeof sums[r]);
    for (int64_t g = 0; g < groups; g++, w += GROUP * OUTS)
        for (int r = 0; r < rows; r++) {
            int32_t first = x[r * x_stride + 2 * g], second = x[r * x_stride + 2 * g + 1];
            for (int n = 0; n < blocks * OUTS; n++) {
                const int8_t *pair = w + n / OUTS * block_bytes + n % OUTS * 2;
                sums[r][n] += first * pair[0] + second * pair[1];
            }
        }
#endif
}
