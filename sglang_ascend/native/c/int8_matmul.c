/* Exact product of INT8 rows and INT8 weights, dequantised by row and by output channel.
 *
 * Pairs of products are summed in 32 bits (vpmaddwd on x86): operands are widened to 16 bits first,
 * so nothing can saturate, unlike with the 8-bit multiply-add of AVX2, whose sums of two products
 * end at 32767. Exact below 2^31 / 2^14 = 131072 products a sum. */
#include "common.h"

#define OUTS 16       /* output channels of a block of packed weights */
#define TILE 4        /* rows that share one pass over a block: with more, sums leave the registers */
#define CHUNK 96      /* rows whose 16-bit copy stays in the second-level cache */
#define WIDEST 4      /* blocks that one row alone reads side by side */
#define BLOCKS_AN_ITEM 4

struct product {
    const int16_t *x;
    const float *x_scale, *weight_scale;
    const int8_t *weight; /* [experts][blocks][pairs][OUTS][2] */
    float *y;
    const int64_t *ends; /* rows end of each expert */
    int64_t experts, pairs, blocks, outs, items_an_expert;
};

/* `rows` rows times `blocks` neighbouring blocks of outputs, whose weights are separate streams. */
INLINE void tile(const struct product *a, int64_t expert, int64_t row, int64_t block,
                 const int rows, const int blocks) {
    const int16_t *x = a->x + row * 2 * a->pairs;
    const int64_t size = a->pairs * 2 * OUTS;
    const int8_t *w = a->weight + (expert * a->blocks + block) * size;
    int32_t sums[TILE][WIDEST * OUTS];
#ifdef __AVX2__
    __m256i acc[TILE][2 * WIDEST];
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < 2 * blocks; n++) acc[r][n] = _mm256_setzero_si256();
    for (int64_t p = 0; p < a->pairs; p++, w += 2 * OUTS) {
        __m256i part[2 * WIDEST];
        for (int n = 0; n < 2 * blocks; n++) {
            const int8_t *half = w + n / 2 * size + n % 2 * OUTS;
            part[n] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)half));
        }
        for (int r = 0; r < rows; r++) {
            int32_t both;
            memcpy(&both, x + r * 2 * a->pairs + 2 * p, sizeof both);
            __m256i pair = _mm256_set1_epi32(both);
            for (int n = 0; n < 2 * blocks; n++)
                acc[r][n] = _mm256_add_epi32(acc[r][n], _mm256_madd_epi16(pair, part[n]));
        }
    }
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < 2 * blocks; n++)
            _mm256_storeu_si256((__m256i *)(sums[r] + n * OUTS / 2), acc[r][n]);
#else
    memset(sums, 0, sizeof sums);
    for (int64_t p = 0; p < a->pairs; p++, w += 2 * OUTS)
        for (int r = 0; r < rows; r++) {
            int32_t first = x[r * 2 * a->pairs + 2 * p], second = x[r * 2 * a->pairs + 2 * p + 1];
            for (int n = 0; n < blocks * OUTS; n++) {
                const int8_t *pair = w + n / OUTS * size + n % OUTS * 2;
                sums[r][n] += first * pair[0] + second * pair[1];
            }
        }
#endif
    int64_t out = block * OUTS, width = a->outs - out;
    if (width > blocks * OUTS) width = blocks * OUTS;
    const float *scale = a->weight_scale + expert * a->outs + out;
    for (int r = 0; r < rows; r++) {
        float *y = a->y + (row + r) * a->outs + out, x_scale = a->x_scale[row + r];
        for (int64_t n = 0; n < width; n++) y[n] = (float)sums[r][n] * x_scale * scale[n];
    }
}

INLINE void rows_of_block(const struct product *a, int64_t expert, int64_t row, int64_t end,
                          int64_t block) {
    for (; row + TILE <= end; row += TILE) tile(a, expert, row, block, TILE, 1);
    switch (end - row) {
        case 3: tile(a, expert, row, block, 3, 1); break;
        case 2: tile(a, expert, row, block, 2, 1); break;
        case 1: tile(a, expert, row, block, 1, 1); break;
    }
}

static void some_blocks(const void *arguments, int64_t item) {
    const struct product *a = arguments;
    int64_t expert = item / a->items_an_expert;
    int64_t begin = item % a->items_an_expert * BLOCKS_AN_ITEM, stop = begin + BLOCKS_AN_ITEM;
    int64_t row = expert ? a->ends[expert - 1] : 0, end = a->ends[expert];
    if (stop > a->blocks) stop = a->blocks;
    /* One row alone is bound by the memory, which serves several streams better than one. */
    if (end - row == 1)
        for (; begin + WIDEST <= stop; begin += WIDEST) tile(a, expert, row, begin, 1, WIDEST);
    for (; row < end; row += CHUNK) {
        int64_t until = row + CHUNK < end ? row + CHUNK : end;
        for (int64_t block = begin; block < stop; block++)
            rows_of_block(a, expert, row, until, block);
    }
}

/* x [rows, in] int8 dense, rows sorted by expert, wide: space for [rows, 2 * pairs] int16. */
void int8_matmul(const int8_t *x, const float *x_scale, const int8_t *weight,
                 const float *weight_scale, const int64_t *ends, float *y, int16_t *wide,
                 int64_t experts, int64_t in, int64_t outs) {
    int64_t pairs = (in + 1) / 2, blocks = (outs + OUTS - 1) / OUTS, rows = ends[experts - 1];
    for (int64_t row = 0; row < rows; row++) {
        int16_t *to = wide + row * 2 * pairs;
        for (int64_t i = 0; i < in; i++) to[i] = x[row * in + i];
        if (in % 2) to[in] = 0;
    }
    int64_t items = (blocks + BLOCKS_AN_ITEM - 1) / BLOCKS_AN_ITEM;
    struct product a = {wide, x_scale, weight_scale, weight, y,    ends,
                        experts, pairs, blocks, outs, items};
    share(some_blocks, &a, experts * items, 1.0 * rows * in * outs / 16);
}

/* weight [experts, in, outs] dense -> packed [experts][blocks][pairs][OUTS][2], zeros behind. */
void pack_int8(const int8_t *weight, int8_t *packed, int64_t experts, int64_t in, int64_t outs) {
    int64_t pairs = (in + 1) / 2, blocks = (outs + OUTS - 1) / OUTS;
    memset(packed, 0, experts * blocks * pairs * 2 * OUTS);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t k = 0; k < in; k++)
            for (int64_t n = 0; n < outs; n++)
                packed[((e * blocks + n / OUTS) * pairs + k / 2) * 2 * OUTS + n % OUTS * 2 + k % 2] =
                    weight[(e * in + k) * outs + n];
}
