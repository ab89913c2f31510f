/* Causal softmax attention of ragged requests over a paged cache, grouped queries and MLA. */
#include <stdlib.h>

#include "common.h"

#define TILE 4   /* query rows that share one pass over keys and values */
#define AHEAD 8  /* keys that are on their way from memory */
#define LINE 16  /* floats of a cache line */

/* Key j of a request is the row at block_table[j / page], offset j % page. A key has a part of
 * `dim` floats and, for MLA, a second one of `dim2`; both are multiples of LANES, as value_dim. */
struct attention {
    const float *query, *query2, *keys, *keys2, *values;
    float *out;
    const int32_t *block_table;
    const int64_t *query_starts, *query_lens, *kv_lens, *first_items;
    int64_t requests, heads, kv_heads, dim, dim2, value_dim, page, table_stride;
    int64_t query_stride, query2_stride; /* of a token; heads are dense */
    int64_t key_strides[3], key2_strides[3], value_strides[3]; /* block, offset, head */
    float scale;
    int64_t causal;
};

INLINE void dots(const float *const *rows, const float *key, int64_t dim, float *scores,
                 int64_t step, const int count) {
    vec acc[TILE];
    for (int r = 0; r < count; r++) acc[r] = splat(0);
    for (int64_t i = 0; i < dim; i += LANES) {
        vec k = load(key + i);
        for (int r = 0; r < count; r++) acc[r] += load(rows[r] + i) * k;
    }
    for (int r = 0; r < count; r++) scores[r * step] += sum_lanes(acc[r]);
}

INLINE void softmax(float *scores, int64_t keys, float scale) {
    float most = scores[0];
    vec largest = splat(most), sums = splat(0);
    int64_t j;
    for (j = 0; j + LANES <= keys; j += LANES) {
        ivec more = load(scores + j) > largest;
        largest = (vec)(((ivec)load(scores + j) & more) | ((ivec)largest & ~more));
    }
    for (int lane = 0; lane < LANES; lane++) most = largest[lane] > most ? largest[lane] : most;
    for (; j < keys; j++) most = scores[j] > most ? scores[j] : most;
    for (j = 0; j + LANES <= keys; j += LANES) {
        vec e = exp_lanes((load(scores + j) - splat(most)) * splat(scale));
        store(scores + j, e);
        sums += e;
    }
    float sum = sum_lanes(sums);
    if (j < keys) {
        float rest[LANES] = {0};
        memcpy(rest, scores + j, (keys - j) * sizeof(float));
        vec e = exp_lanes((load(rest) - splat(most)) * splat(scale));
        for (int64_t i = 0; j + i < keys; i++) sum += scores[j + i] = e[i];
    }
    float inverse = 1.0f / sum;
    for (j = 0; j < keys; j++) scores[j] *= inverse;
}

/* out[r][part] = sum over keys of weight * value, for `vectors` vectors of the value. */
/* The row of a key that comes soon: rows lie anywhere in the cache, and a row is too short for the
 * hardware to see where it leads. */
INLINE void fetch(const float *from, const int64_t *offsets, int64_t j, int64_t keys, int64_t dim) {
    if (j + AHEAD >= keys) return;
    for (int64_t i = 0; i < dim; i += LINE) __builtin_prefetch(from + offsets[j + AHEAD] + i, 0, 3);
}

INLINE void weigh(const float *scores, int64_t step, const int64_t *offsets, const float *values,
                  int64_t keys, float *const *out, const int count, const int vectors) {
    vec acc[TILE][4];
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) acc[r][v] = splat(0);
    for (int64_t j = 0; j < keys; j++) {
        const float *value = values + offsets[j];
        for (int r = 0; r < count; r++) {
            vec weight = splat(scores[r * step + j]);
            for (int v = 0; v < vectors; v++) acc[r][v] += weight * load(value + v * LANES);
        }
    }
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) store(out[r] + v * LANES, acc[r][v]);
}

static void fill_offsets(int64_t *offsets, const int32_t *table, int64_t keys, int64_t page,
                         const int64_t *strides, int64_t head) {
    for (int64_t j = 0, block = 0; j < keys; block++)
        for (int64_t offset = 0; offset < page && j < keys; offset++, j++)
            offsets[j] = table[block] * strides[0] + offset * strides[1] + head * strides[2];
}

INLINE void rows_of_head(const struct attention *a, int64_t request, int64_t kv_head,
                         int64_t first, float *scores, const int64_t *const *offsets,
                         const int count) {
    int64_t group = a->heads / a->kv_heads, keys = a->kv_lens[request], longest = 0;
    const float *query[TILE], *query2[TILE];
    float *out[TILE];
    int64_t visible[TILE];
    for (int r = 0; r < count; r++) {
        int64_t index = (first + r) / group, head = kv_head * group + (first + r) % group;
        int64_t token = a->query_starts[request] + index;
        query[r] = a->query + token * a->query_stride + head * a->dim;
        query2[r] = a->dim2 ? a->query2 + token * a->query2_stride + head * a->dim2 : 0;
        out[r] = a->out + (token * a->heads + head) * a->value_dim;
        visible[r] = a->causal ? keys - a->query_lens[request] + index + 1 : keys;
        longest = visible[r] > longest ? visible[r] : longest;
    }
    memset(scores, 0, count * keys * sizeof(float));
    for (int64_t j = 0; j < longest; j++) {
        fetch(a->keys, offsets[0], j, longest, a->dim);
        /* The values are asked for as well, which the second pass reads. */
        if (a->values != a->keys) fetch(a->values, offsets[2], j, longest, a->value_dim);
        dots(query, a->keys + offsets[0][j], a->dim, scores + j, keys, count);
        if (a->dim2) dots(query2, a->keys2 + offsets[1][j], a->dim2, scores + j, keys, count);
    }
    for (int r = 0; r < count; r++) {
        softmax(scores + r * keys, visible[r], a->scale);
        for (int64_t j = visible[r]; j < longest; j++) scores[r * keys + j] = 0;
    }
    int64_t done = 0;
    const int wide = count < TILE ? 4 : 3; /* as many sums as there are registers for */
    for (; done + wide * LANES <= a->value_dim; done += wide * LANES) {
        weigh(scores, keys, offsets[2], a->values + done, longest, out, count, wide);
        for (int r = 0; r < count; r++) out[r] += wide * LANES;
    }
    for (; done < a->value_dim; done += LANES) {
        weigh(scores, keys, offsets[2], a->values + done, longest, out, count, 1);
        for (int r = 0; r < count; r++) out[r] += LANES;
    }
}

/* An item is one kv head of one request and all rows of TILE tiles of it. */
#define TILES_AN_ITEM 8

static void attend_item(const void *arguments, int64_t item) {
    const struct attention *a = arguments;
    int64_t request = 0;
    while (a->first_items[request + 1] <= item) request++;
    int64_t rows = a->query_lens[request] * (a->heads / a->kv_heads);
    int64_t parts = (rows + TILE * TILES_AN_ITEM - 1) / (TILE * TILES_AN_ITEM);
    int64_t local = item - a->first_items[request], kv_head = local / parts;
    int64_t row = local % parts * TILE * TILES_AN_ITEM, end = row + TILE * TILES_AN_ITEM;
    int64_t keys = a->kv_lens[request];
    const int32_t *table = a->block_table + request * a->table_stride;
    int64_t *space = malloc(keys * (3 * sizeof(int64_t) + TILE * sizeof(float)));
    float *scores = (float *)(space + 3 * keys);
    const int64_t *offsets[3] = {space, space + keys, space + 2 * keys};
    fill_offsets(space, table, keys, a->page, a->key_strides, kv_head);
    if (a->dim2) fill_offsets(space + keys, table, keys, a->page, a->key2_strides, kv_head);
    fill_offsets(space + 2 * keys, table, keys, a->page, a->value_strides, kv_head);
    if (end > rows) end = rows;
    for (; row + TILE <= end; row += TILE)
        rows_of_head(a, request, kv_head, row, scores, offsets, TILE);
    switch (end - row) {
        case 3: rows_of_head(a, request, kv_head, row, scores, offsets, 3); break;
        case 2: rows_of_head(a, request, kv_head, row, scores, offsets, 2); break;
        case 1: rows_of_head(a, request, kv_head, row, scores, offsets, 1); break;
    }
    free(space);
}

void paged_attention(const struct attention *given) {
    struct attention a = *given;
    int64_t *first = malloc((a.requests + 1) * sizeof(int64_t));
    double cost = 0;
    first[0] = 0;
    for (int64_t r = 0; r < a.requests; r++) {
        int64_t rows = a.query_lens[r] * (a.heads / a.kv_heads);
        int64_t parts = (rows + TILE * TILES_AN_ITEM - 1) / (TILE * TILES_AN_ITEM);
        first[r + 1] = first[r] + parts * a.kv_heads;
        cost += 0.25 * rows * a.kv_heads * a.kv_lens[r] * (a.dim + a.dim2 + a.value_dim);
    }
    a.first_items = first;
    share(attend_item, &a, first[a.requests], cost);
    free(first);
}
