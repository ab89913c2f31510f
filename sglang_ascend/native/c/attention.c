/* Causal softmax attention of ragged requests over a paged cache, grouped queries and MLA. */
#include <stdlib.h>

#include "common.h"

#define TILE 4   /* query rows that share one pass over keys and values */
#define BLOCK 32 /* keys that all heads read before the next ones */
#define AHEAD 8  /* keys that are on their way from memory */
#define LINE 16  /* floats of a cache line */

/* What head dimensions have to be multiples of. */
int64_t lanes(void) { return LANES; }

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
    int64_t heads_an_item; /* set here */
};

INLINE void dots(const float *const *rows, const float *key, int64_t dim, float *scores,
                 int64_t step, const int count, const int add) {
    vec acc[TILE];
    float sums[TILE];
    for (int r = 0; r < count; r++) acc[r] = splat(0);
    for (int64_t i = 0; i < dim; i += LANES) {
        vec k = load(key + i);
        for (int r = 0; r < count; r++) acc[r] += load(rows[r] + i) * k;
    }
    sum_lanes_of(acc, sums, count);
    for (int r = 0; r < count; r++) scores[r * step] = add ? scores[r * step] + sums[r] : sums[r];
}

INLINE void softmax(float *scores, int64_t keys, float scale) {
    float most = scores[0];
    vec largest = splat(most), sums = splat(0);
    int64_t j;
    for (j = 0; j + LANES <= keys; j += LANES) largest = larger(largest, load(scores + j));
    most = largest_lane(largest, most);
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

/* out[r][part] += sum over keys of weight * value, for `vectors` vectors of the value. */
INLINE void weigh(const float *scores, int64_t step, const int64_t *offsets, const float *values,
                  int64_t keys, float *const *out, int64_t at, const int count, const int vectors) {
    vec acc[TILE][4];
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) acc[r][v] = load(out[r] + at + v * LANES);
    for (int64_t j = 0; j < keys; j++) {
        const float *value = values + offsets[j] + at;
        for (int r = 0; r < count; r++) {
            vec weight = splat(scores[r * step + j]);
            for (int v = 0; v < vectors; v++) acc[r][v] += weight * load(value + v * LANES);
        }
    }
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) store(out[r] + at + v * LANES, acc[r][v]);
}

/* A cache row that is needed soon: rows lie anywhere, and the hardware does not see where. */
INLINE void fetch(const float *from, int64_t dim) {
    for (int64_t i = 0; i < dim; i += LINE) __builtin_prefetch(from + i, 0, 3);
}

static void fill_offsets(int64_t *offsets, const int32_t *table, int64_t keys, int64_t page,
                         const int64_t *strides) {
    for (int64_t j = 0, block = 0; j < keys; block++)
        for (int64_t offset = 0; offset < page && j < keys; offset++, j++)
            offsets[j] = table[block] * strides[0] + offset * strides[1];
}

/* `count` query rows of each of `heads` neighbouring kv heads. A block of keys is read for all
 * heads before the next block, so that memory is read in the order in which it lies. */
INLINE void rows_of_heads(const struct attention *a, int64_t request, int64_t kv_head,
                          int64_t heads, int64_t first, float *scores,
                          const int64_t *const *offsets, const int count) {
    int64_t group = a->heads / a->kv_heads, keys = a->kv_lens[request], longest = 0;
    int64_t visible[TILE], token[TILE], of_group[TILE];
    for (int r = 0; r < count; r++) {
        int64_t index = (first + r) / group;
        of_group[r] = (first + r) % group;
        token[r] = a->query_starts[request] + index;
        visible[r] = a->causal ? keys - a->query_lens[request] + index + 1 : keys;
        longest = visible[r] > longest ? visible[r] : longest;
    }
    for (int64_t begin = 0; begin < longest; begin += BLOCK) {
        int64_t end = begin + BLOCK < longest ? begin + BLOCK : longest;
        for (int64_t h = kv_head; h < kv_head + heads; h++) {
            const float *query[TILE], *query2[TILE];
            for (int r = 0; r < count; r++) {
                int64_t head = h * group + of_group[r];
                query[r] = a->query + token[r] * a->query_stride + head * a->dim;
                query2[r] = a->dim2 ? a->query2 + token[r] * a->query2_stride + head * a->dim2 : 0;
            }
            const float *own = a->keys + h * a->key_strides[2];
            const float *own2 = a->keys2 + h * a->key2_strides[2];
            const float *values = a->values + h * a->value_strides[2];
            float *at = scores + (h - kv_head) * count * keys;
            for (int64_t j = begin; j < end; j++) {
                if (j + AHEAD < longest) fetch(own + offsets[0][j + AHEAD], a->dim);
                if (a->values != a->keys) fetch(values + offsets[2][j], a->value_dim);
                dots(query, own + offsets[0][j], a->dim, at + j, keys, count, 0);
                if (a->dim2) dots(query2, own2 + offsets[1][j], a->dim2, at + j, keys, count, 1);
            }
        }
    }
    for (int64_t h = 0; h < heads; h++)
        for (int r = 0; r < count; r++) {
            float *row = scores + (h * count + r) * keys;
            softmax(row, visible[r], a->scale);
            for (int64_t j = visible[r]; j < longest; j++) row[j] = 0;
            int64_t head = (kv_head + h) * group + of_group[r];
            memset(a->out + (token[r] * a->heads + head) * a->value_dim, 0,
                   a->value_dim * sizeof(float));
        }
    for (int64_t begin = 0; begin < longest; begin += BLOCK) {
        int64_t end = begin + BLOCK < longest ? begin + BLOCK : longest;
        for (int64_t h = kv_head; h < kv_head + heads; h++) {
            float *out[TILE];
            for (int r = 0; r < count; r++)
                out[r] = a->out + (token[r] * a->heads + h * group + of_group[r]) * a->value_dim;
            const float *values = a->values + h * a->value_strides[2];
            const float *at = scores + (h - kv_head) * count * keys + begin;
            /* As many sums as there are registers for. */
            const int wide = count < TILE || LANES == 16 ? 4 : 3;
            int64_t done = 0;
            for (; done + wide * LANES <= a->value_dim; done += wide * LANES)
                weigh(at, keys, offsets[2] + begin, values, end - begin, out, done, count, wide);
            for (; done < a->value_dim; done += LANES)
                weigh(at, keys, offsets[2] + begin, values, end - begin, out, done, count, 1);
        }
    }
}

/* An item is all rows of TILE tiles of one kv head of one request, or of all its kv heads: where a
 * request has few rows, as in decode, a pass over whole cache rows is what memory is fastest at. */
#define TILES_AN_ITEM 8
#define ENOUGH_ITEMS 8

static int64_t rows_of(const struct attention *a, int64_t request) {
    return a->query_lens[request] * (a->heads / a->kv_heads);
}

static int64_t parts_of(const struct attention *a, int64_t request) {
    return (rows_of(a, request) + TILE * TILES_AN_ITEM - 1) / (TILE * TILES_AN_ITEM);
}

static void attend_item(const void *arguments, int64_t item) {
    const struct attention *a = arguments;
    int64_t request = 0;
    while (a->first_items[request + 1] <= item) request++;
    int64_t parts = parts_of(a, request), local = item - a->first_items[request];
    int64_t row = local % parts * TILE * TILES_AN_ITEM, end = row + TILE * TILES_AN_ITEM;
    int64_t keys = a->kv_lens[request], first_head = local / parts * a->heads_an_item;
    const int32_t *table = a->block_table + request * a->table_stride;
    int64_t heads = a->heads_an_item;
    int64_t *space = malloc(keys * (3 * sizeof(int64_t) + heads * TILE * sizeof(float)));
    float *scores = (float *)(space + 3 * keys);
    const int64_t *offsets[3] = {space, space + keys, space + 2 * keys};
    fill_offsets(space, table, keys, a->page, a->key_strides);
    if (a->dim2) fill_offsets(space + keys, table, keys, a->page, a->key2_strides);
    fill_offsets(space + 2 * keys, table, keys, a->page, a->value_strides);
    if (end > rows_of(a, request)) end = rows_of(a, request);
    for (; row + TILE <= end; row += TILE)
        rows_of_heads(a, request, first_head, heads, row, scores, offsets, TILE);
    switch (end - row) {
        case 3: rows_of_heads(a, request, first_head, heads, row, scores, offsets, 3); break;
        case 2: rows_of_heads(a, request, first_head, heads, row, scores, offsets, 2); break;
        case 1: rows_of_heads(a, request, first_head, heads, row, scores, offsets, 1); break;
    }
    free(space);
}

void paged_attention(const struct attention *given) {
    struct attention a = *given;
    int64_t *first = malloc((a.requests + 1) * sizeof(int64_t));
    double cost = 0;
    int64_t parts = 0;
    for (int64_t r = 0; r < a.requests; r++) parts += parts_of(&a, r);
    /* Neighbouring heads lie side by side, and there are items enough for every thread. */
    int whole = a.key_strides[2] == a.dim && a.value_strides[2] == a.value_dim && !a.dim2;
    a.heads_an_item = whole && parts == a.requests && parts >= ENOUGH_ITEMS ? a.kv_heads : 1;
    first[0] = 0;
    for (int64_t r = 0; r < a.requests; r++) {
        first[r + 1] = first[r] + parts_of(&a, r) * a.kv_heads / a.heads_an_item;
        cost += 0.25 * rows_of(&a, r) * a.kv_heads * a.kv_lens[r] * (a.dim + a.dim2 + a.value_dim);
    }
    a.first_items = first;
    share(attend_item, &a, first[a.requests], cost);
    free(first);
}
