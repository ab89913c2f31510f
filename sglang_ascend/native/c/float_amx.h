/* Float32 products on AMX, whose operands are BF16: by splitting every number into three of those.
 *
 * A float32 has 24 bits of significand, a BF16 has 8, so x = high + middle + low exactly. Of the
 * nine partial products, each exact, the six down to 2^-16 of the largest are summed in float32;
 * the three left out are below the rounding of float32 itself. A weight that came from BF16 has no
 * middle and low part, one from a quantised format often no low part: what is zero is not
 * multiplied. (Split products: Henry, Tang, Heinecke, arXiv 1904.06376.) An infinity becomes NaN,
 * since the parts that it does not have are multiplied with it.
 *
 * The product is computed as y^T = weight x^T, since rows of weights are what lies right for it. */
#include <stdlib.h>

#include "amx.h"

#define PARTS 3
#define CHUNK_BYTES (1 << 20) /* of rows, which stay in the second-level cache for all weights */
#define SPAN 32     /* elements that one instruction sums; also outputs and rows of a tile */
#define AMX_FROM 33 /* rows, from which it is the faster one */
#define AHEAD 2048  /* elements of weights that are on their way from memory */

typedef uint16_t bf16;

/* The upper 16 bits of every lane; x keeps the rest. */
INLINE __m512i split(__m512 *x) {
    __m512i high = _mm512_and_si512(_mm512_castps_si512(*x), _mm512_set1_epi32((int)0xffff0000));
    *x = _mm512_sub_ps(*x, _mm512_castsi512_ps(high));
    return _mm512_srli_epi32(high, 16);
}

/* SPAN elements of a row, `count` of them there, as PARTS times SPAN BF16 at a stride. Returns
 * which parts are not all zero, a bit each. */
INLINE int split_span(const float *from, int64_t count, bf16 *to, int64_t part_stride) {
    int any = 0;
    for (int half = 0; half < 2; half++) {
        int64_t there = count - half * 16;
        __mmask16 mask = there >= 16 ? 0xffff : there <= 0 ? 0 : (__mmask16)((1 << there) - 1);
        __m512 x = _mm512_maskz_loadu_ps(mask, from + half * 16);
        for (int p = 0; p < PARTS; p++) {
            __m512i part = split(&x);
            any |= (_mm512_test_epi32_mask(part, part) != 0) << p;
            _mm256_storeu_si256((__m256i *)(to + p * part_stride + half * 16),
                                _mm512_cvtepi32_epi16(part));
        }
    }
    return any;
}

/* 16 by 16 words, in place of their transpose. */
INLINE void transpose(__m512i *t) {
    __m512i u[16];
    for (int i = 0; i < 16; i += 4) {
        __m512i a = _mm512_unpacklo_epi32(t[i], t[i + 1]);
        __m512i b = _mm512_unpackhi_epi32(t[i], t[i + 1]);
        __m512i c = _mm512_unpacklo_epi32(t[i + 2], t[i + 3]);
        __m512i d = _mm512_unpackhi_epi32(t[i + 2], t[i + 3]);
        u[i] = _mm512_unpacklo_epi64(a, c), u[i + 1] = _mm512_unpackhi_epi64(a, c);
        u[i + 2] = _mm512_unpacklo_epi64(b, d), u[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(u[i], u[i + 4], 0x88);
        __m512i b = _mm512_shuffle_i32x4(u[i], u[i + 4], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0x88);
        __m512i d = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0xdd);
        t[i] = _mm512_shuffle_i32x4(a, c, 0x88), t[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88), t[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

struct amx_product {
    const struct product *of;
    bf16 *x; /* [rows / 16][spans][PARTS][16 pairs][16 rows][2] */
    int64_t rows, spans;
    int64_t items_a_chunk, rows_a_chunk;
};

#define TILE_OF (16 * 16 * 2)

/* Sixteen rows of x as AMX wants its second operand: pairs of elements, rows side by side. */
static void pack_rows(const void *arguments, int64_t item) {
    const struct amx_product *a = arguments;
    for (int64_t s = 0; s < a->spans; s++) {
        bf16 part[16][PARTS][SPAN];
        for (int r = 0; r < 16; r++) {
            int64_t row = item * 16 + r, count = row < a->rows ? a->of->in - s * SPAN : 0;
            const float *from = a->of->x + (count ? row * a->of->x_stride + s * SPAN : 0);
            split_span(from, count, part[r][0], SPAN);
        }
        for (int p = 0; p < PARTS; p++) {
            __m512i t[16];
            for (int r = 0; r < 16; r++) t[r] = _mm512_loadu_si512(part[r][p]);
            transpose(t);
            bf16 *to = a->x + ((item * a->spans + s) * PARTS + p) * TILE_OF;
            for (int k = 0; k < 16; k++) _mm512_storeu_si512(to + k * 32, t[k]);
        }
    }
}

/* Tiles: 0 to 3 sums (two of outputs by two of rows), 4 and 5 weights, 6 and 7 rows. */
INLINE void load_weights(const bf16 *w, int64_t width) {
    _tile_loadd(4, w, width * sizeof *w);
    _tile_loadd(5, w + 16 * width, width * sizeof *w);
}

INLINE void load_rows(const bf16 *x, int64_t x_tile, const int two) {
    _tile_loadd(6, x, 64);
    if (two) _tile_loadd(7, x + x_tile, 64);
}

INLINE void multiply(const int two) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if (two) {
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* sums [SPAN outputs][SPAN rows]; `parts` says which parts of the weights are there. The smallest
 * products come first. */
INLINE void amx_sums(const bf16 *w, int64_t w_part, int64_t width, const bf16 *x, int64_t x_tile,
                     int parts, float sums[][SPAN], const int two) {
    const bf16 *end = w + width;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; w < end; w += SPAN, x += PARTS * TILE_OF) {
        load_weights(w, width);
        load_rows(x + 2 * TILE_OF, x_tile, two);
        multiply(two);
        load_rows(x + TILE_OF, x_tile, two);
        multiply(two);
        if (parts & 2) {
            load_weights(w + w_part, width);
            multiply(two);
        }
        load_rows(x, x_tile, two);
        if (parts & 2) multiply(two);
        if (parts & 4) {
            load_weights(w + 2 * w_part, width);
            multiply(two);
        }
        if (parts & 6) load_weights(w, width);
        multiply(two);
    }
    _tile_stored(0, sums, sizeof sums[0]);
    _tile_stored(2, sums + 16, sizeof sums[0]);
    if (two) {
        _tile_stored(1, (float *)sums + 16, sizeof sums[0]);
        _tile_stored(3, (float *)(sums + 16) + 16, sizeof sums[0]);
    }
}

/* y of 16 rows and SPAN outputs from their sums, which lie the other way round. */
INLINE void put(const struct product *a, float sums[][SPAN], int column, int64_t row, int64_t end,
                int64_t out) {
    for (int half = 0; half < 2; half++) {
        int64_t first = out + half * 16, there = a->outs - first;
        if (there <= 0) return;
        __mmask16 mask = there >= 16 ? 0xffff : (__mmask16)((1 << there) - 1);
        __m512i t[16];
        for (int n = 0; n < 16; n++) t[n] = _mm512_loadu_si512(sums[half * 16 + n] + column);
        transpose(t);
        __m512 bias = a->bias ? _mm512_maskz_loadu_ps(mask, a->bias + first) : _mm512_setzero_ps();
        for (int r = 0; r < 16 && row + r < end; r++)
            _mm512_mask_storeu_ps(a->y + (row + r) * a->outs + first, mask,
                                  _mm512_add_ps(_mm512_castsi512_ps(t[r]), bias));
    }
}

/* All rows times SPAN outputs, whose weights are split here, once. */
static void amx_outs(const void *arguments, int64_t item) {
    const struct amx_product *a = arguments;
    const struct product *of = a->of;
    int64_t begin = item / a->items_a_chunk * a->rows_a_chunk, end = begin + a->rows_a_chunk;
    if (end > a->rows) end = a->rows;
    int64_t out = item % a->items_a_chunk * SPAN, width = a->spans * SPAN, w_part = SPAN * width;
    bf16 *w = malloc(PARTS * w_part * sizeof *w);
    int parts = 0;
    for (int n = 0; n < SPAN; n++)
        for (int64_t s = 0; s < a->spans; s++) {
            int64_t count = out + n < of->outs ? of->in - s * SPAN : 0;
            const float *from = of->weight + (count ? (out + n) * of->weight_stride + s * SPAN : 0);
            __builtin_prefetch(from + AHEAD, 0, 2);
            __builtin_prefetch(from + AHEAD + 16, 0, 2);
            parts |= split_span(from, count, w + n * width + s * SPAN, w_part);
        }
    float sums[SPAN][SPAN];
    int64_t x_tile = a->spans * PARTS * TILE_OF;
    amx_begin();
    for (int64_t row = begin; row < end; row += SPAN) {
        const bf16 *x = a->x + row / 16 * x_tile;
        if (end - row > 16) {
            amx_sums(w, w_part, width, x, x_tile, parts, sums, 1);
            put(of, sums, 16, row + 16, end, out);
        } else {
            amx_sums(w, w_part, width, x, x_tile, parts, sums, 0);
        }
        put(of, sums, 0, row, end, out);
    }
    _tile_release();
    free(w);
}

static void amx_matmul(const struct product *of, int64_t rows) {
    int64_t spans = (of->in + SPAN - 1) / SPAN, tiles = (rows + 15) / 16;
    int64_t tile_bytes = spans * PARTS * TILE_OF * sizeof(bf16);
    int64_t chunk = CHUNK_BYTES / tile_bytes / 2 * 2 * 16;
    if (chunk < 4 * 16) chunk = 4 * 16;
    struct amx_product a = {
        .of = of,
        .x = malloc(tiles * tile_bytes),
        .rows = rows,
        .spans = spans,
        .items_a_chunk = (of->outs + SPAN - 1) / SPAN,
        .rows_a_chunk = chunk,
    };
    int64_t items = (rows + chunk - 1) / chunk * a.items_a_chunk;
    share(pack_rows, &a, tiles, 1.0 * rows * of->in);
    share(amx_outs, &a, items, 0.1 * rows * of->in * of->outs);
    free(a.x);
}
