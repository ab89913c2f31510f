/* Exact product of INT8 rows and INT8 weights, dequantised by row and by output channel.
 *
 * Weights are packed for the machine: blocks of sixteen output channels, within them groups of
 * input elements that one instruction multiplies and sums. Exact below 2^31 / 2^14 = 131072
 * products a sum. */
#include "common.h"

#define OUTS 16       /* output channels of a block of packed weights */
#define CHUNK 96      /* rows whose copy stays in the second-level cache */
#define WIDEST 4      /* blocks that one row alone reads side by side */
#define BLOCKS_AN_ITEM 4
#define ROWS_AN_ITEM 16 /* of the copy */
#define FETCH(from) __builtin_prefetch(from, 0, 2)

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include "int8_tile_vnni.h"
#else
#include "int8_tile_pairs.h"
#endif
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
#define AMX
#include "int8_tile_amx.h"
#endif

struct product {
    const element *x; /* [rows][x_stride], zeros of weights behind `in` */
    const float *x_scale, *weight_scale;
    const int8_t *weight; /* [experts][blocks] of block_bytes */
    float *y;
    const int64_t *ends; /* rows end of each expert */
    int64_t groups, x_stride, block_bytes, blocks, outs, items_an_expert;
    int amx;
};

static int64_t groups_of(int64_t in) {
#ifdef AMX
    int64_t step = GROUP * AMX_GROUPS;
#else
    int64_t step = GROUP;
#endif
    return (in + step - 1) / step * step / GROUP;
}

static int64_t block_bytes_of(int64_t in) {
    int64_t behind = GROUP == 4 ? OUTS * sizeof(int32_t) : 0;
    return groups_of(in) * GROUP * OUTS + behind;
}

static int64_t blocks_of(int64_t outs) { return (outs + OUTS - 1) / OUTS; }

/* Bytes that pack_int8 writes, and those of `wide` of int8_matmul. */
int64_t int8_packed_bytes(int64_t experts, int64_t in, int64_t outs) {
    return experts * blocks_of(outs) * block_bytes_of(in);
}

int64_t int8_wide_bytes(int64_t rows, int64_t in) {
    /* A tile of AMX reads up to 32 rows from any one on. */
    return (rows + 32) * groups_of(in) * GROUP * sizeof(element);
}

typedef uint32_t uvec __attribute__((vector_size(sizeof(ivec)), aligned(4), may_alias));

/* y of one row and `blocks` blocks; where the sums hold an excess, it is taken off,
 * and what wrapped on the way comes back. */
INLINE void dequantise(const struct product *a, int64_t expert, const int32_t *sums,
                       const int32_t *excess, int64_t row, int64_t block, const int blocks) {
    int64_t out = block * OUTS, width = a->outs - out;
    const float *scale = a->weight_scale + expert * a->outs + out;
    float *y = a->y + row * a->outs + out, x_scale = a->x_scale[row];
    if (width >= blocks * OUTS) {
        for (int n = 0; n < blocks * OUTS; n += LANES) {
            uvec exact = *(const uvec *)(sums + n);
            if (excess) exact -= *(const uvec *)(excess + n);
            vec sum = __builtin_convertvector((ivec)exact, vec);
            store(y + n, sum * splat(x_scale) * load(scale + n));
        }
        return;
    }
    for (int64_t n = 0; n < width; n++) {
        uint32_t exact = (uint32_t)sums[n] - (excess ? (uint32_t)excess[n] : 0);
        y[n] = (float)(int32_t)exact * x_scale * scale[n];
    }
}

/* `rows` rows times `blocks` neighbouring blocks of outputs, `pass` of `passes` over these: each
 * fetches its part of the next blocks. */
INLINE void tile(const struct product *a, int64_t expert, int64_t row, int64_t block,
                 int64_t pass, int64_t passes, const int rows, const int blocks) {
    int32_t sums[TILE][WIDEST * OUTS];
    const int8_t *w = a->weight + (expert * a->blocks + block) * a->block_bytes;
    const int8_t *next = w + blocks * a->block_bytes + pass * a->block_bytes / passes;
    tile_sums(a->x + row * a->x_stride, a->x_stride, w, a->block_bytes, a->groups, next,
              GROUP * OUTS / passes, sums, rows, blocks);
    for (int r = 0; r < rows; r++) dequantise(a, expert, sums[r], 0, row + r, block, blocks);
}

INLINE void rows_of_blocks(const struct product *a, int64_t expert, int64_t row, int64_t end,
                           int64_t block, const int blocks) {
    int64_t pass = 0, passes = (end - row + TILE - 1) / TILE;
    for (; row + TILE <= end; row += TILE)
        tile(a, expert, row, block, pass++, passes, TILE, blocks);
    for (; row + 4 <= end; row += 4) tile(a, expert, row, block, pass, passes, 4, blocks);
    switch (end - row) {
        case 3: tile(a, expert, row, block, pass, passes, 3, blocks); break;
        case 2: tile(a, expert, row, block, pass, passes, 2, blocks); break;
        case 1: tile(a, expert, row, block, pass, passes, 1, blocks); break;
    }
}

#ifdef AMX
INLINE void amx_tile(const struct product *a, int64_t expert, int64_t row, int64_t end,
                     int64_t block, const int high, const int wide) {
    int32_t sums[2 * AMX_ROWS][2 * OUTS], excess[2 * OUTS];
    const int8_t *w = a->weight + (expert * a->blocks + block) * a->block_bytes;
    amx_sums(a->x + row * a->x_stride, a->x_stride, w, a->block_bytes, a->groups, sums, high, wide);
    for (int n = 0; n < (wide ? 2 : 1); n++)
        memcpy(excess + n * OUTS, w + (n + 1) * a->block_bytes - sizeof(int32_t) * OUTS,
               sizeof(int32_t) * OUTS);
    for (int r = 0; r < (high ? 2 : 1) * AMX_ROWS && row + r < end; r++)
        dequantise(a, expert, sums[r], excess, row + r, block, wide ? 2 : 1);
}

INLINE void amx_rows(const struct product *a, int64_t expert, int64_t row, int64_t end,
                     int64_t block, const int wide) {
    for (; end - row > AMX_ROWS; row += 2 * AMX_ROWS)
        amx_tile(a, expert, row, end, block, 1, wide);
    if (row < end) amx_tile(a, expert, row, end, block, 0, wide);
}
#endif

static void some_blocks(const void *arguments, int64_t item) {
    const struct product *a = arguments;
    int64_t expert = item / a->items_an_expert;
    int64_t begin = item % a->items_an_expert * BLOCKS_AN_ITEM, stop = begin + BLOCKS_AN_ITEM;
    int64_t row = expert ? a->ends[expert - 1] : 0, end = a->ends[expert];
    if (stop > a->blocks) stop = a->blocks;
#ifdef AMX
    if (a->amx && end - row >= AMX_FROM) {
        amx_begin();
        for (; begin + 2 <= stop; begin += 2) amx_rows(a, expert, row, end, begin, 1);
        if (begin < stop) amx_rows(a, expert, row, end, begin, 0);
        _tile_release();
        return;
    }
#endif
    /* One row alone is bound by the memory, which serves several streams better than one. */
    if (end - row == 1)
        for (; begin + WIDEST <= stop; begin += WIDEST)
            tile(a, expert, row, begin, 0, 1, 1, WIDEST);
    for (; row < end; row += CHUNK) {
        int64_t until = row + CHUNK < end ? row + CHUNK : end, block = begin;
        for (; block + TILE_BLOCKS <= stop; block += TILE_BLOCKS)
            rows_of_blocks(a, expert, row, until, block, TILE_BLOCKS);
        for (; block < stop; block++) rows_of_blocks(a, expert, row, until, block, 1);
    }
}

struct widening {
    const int8_t *x;
    element *wide;
    int64_t rows, in, stride;
};

static void widen_rows(const void *arguments, int64_t item) {
    const struct widening *a = arguments;
    int64_t end = (item + 1) * ROWS_AN_ITEM;
    for (int64_t row = item * ROWS_AN_ITEM; row < end && row < a->rows; row++) {
        const int8_t *from = a->x + row * a->in;
        element *to = a->wide + row * a->stride;
        for (int64_t i = 0; i < a->in; i++) to[i] = widened(from[i]);
        for (int64_t i = a->in; i < a->stride; i++) to[i] = 0;
    }
}

/* x [rows, in] int8 dense, rows sorted by expert; wide: space of int8_wide_bytes. */
void int8_matmul(const int8_t *x, const float *x_scale, const int8_t *weight,
                 const float *weight_scale, const int64_t *ends, float *y, element *wide,
                 int64_t experts, int64_t in, int64_t outs) {
    int64_t rows = ends[experts - 1], x_stride = groups_of(in) * GROUP;
    struct widening copy = {x, wide, rows, in, x_stride};
    share(widen_rows, &copy, (rows + ROWS_AN_ITEM - 1) / ROWS_AN_ITEM, 0.1 * rows * in);
    struct product a = {
        .x = wide,
        .x_scale = x_scale,
        .weight_scale = weight_scale,
        .weight = weight,
        .y = y,
        .ends = ends,
        .groups = groups_of(in),
        .x_stride = x_stride,
        .block_bytes = block_bytes_of(in),
        .blocks = blocks_of(outs),
        .outs = outs,
        .items_an_expert = (blocks_of(outs) + BLOCKS_AN_ITEM - 1) / BLOCKS_AN_ITEM,
    };
#ifdef AMX
    a.amx = amx_allowed();
#endif
    share(some_blocks, &a, experts * a.items_an_expert, 1.0 * rows * in * outs / 16);
}

/* weight [experts, in, outs] dense -> packed [experts][blocks][groups][OUTS][GROUP], zeros behind
 * the last elements; with VNNI, 128 times the sum of each output's weights behind each block. */
void pack_int8(const int8_t *weight, int8_t *packed, int64_t experts, int64_t in, int64_t outs) {
    int64_t blocks = blocks_of(outs), size = block_bytes_of(in);
    memset(packed, 0, experts * blocks * size);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t b = 0; b < blocks; b++) {
            int8_t *block = packed + (e * blocks + b) * size;
            int64_t width = outs - b * OUTS < OUTS ? outs - b * OUTS : OUTS;
            int32_t sums[OUTS] = {0};
            for (int64_t k = 0; k < in; k++) {
                const int8_t *from = weight + (e * in + k) * outs + b * OUTS;
                int8_t *to = block + k / GROUP * OUTS * GROUP + k % GROUP;
                for (int64_t n = 0; n < width; n++) {
                    to[n * GROUP] = from[n];
                    sums[n] += from[n];
                }
            }
            if (GROUP == 4) {
                for (int n = 0; n < OUTS; n++) sums[n] = (int32_t)(128u * (uint32_t)sums[n]);
                memcpy(block + groups_of(in) * GROUP * OUTS, sums, sizeof sums);
            }
        }
}
