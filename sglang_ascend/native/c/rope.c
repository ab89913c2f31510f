/* Rotary positions of query and key, and the write of rows to the paged cache. */
#include "common.h"

struct rotation {
    const float *x[2], *table;
    float *y[2];
    int64_t stride[2], heads[2]; /* of query and key; y is dense */
    const int64_t *positions;
    int64_t rotary, interleaved, split_halves;
};

INLINE void rotate_head(const float *x, float *y, const float *cos, const float *sin,
                        const struct rotation *a) {
    int64_t half = a->rotary / 2;
    if (!a->interleaved) {
        for (int64_t i = 0; i < half; i++) {
            y[i] = x[i] * cos[i] - x[i + half] * sin[i];
            y[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
        }
        return;
    }
    int64_t second = a->split_halves ? half : 1, step = a->split_halves ? 1 : 2;
    for (int64_t i = 0; i < half; i++) {
        y[i * step] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
        y[i * step + second] = x[2 * i + 1] * cos[i] + x[2 * i] * sin[i];
    }
}

static void rotate_token(const void *arguments, int64_t token) {
    const struct rotation *a = arguments;
    const float *cos = a->table + a->positions[token] * a->rotary, *sin = cos + a->rotary / 2;
    for (int part = 0; part < 2; part++)
        for (int64_t head = 0; head < a->heads[part]; head++)
            rotate_head(a->x[part] + token * a->stride[part] + head * a->rotary,
                        a->y[part] + (token * a->heads[part] + head) * a->rotary, cos, sin, a);
}

/* query [tokens, heads, rotary] and key likewise, dense within a token; table [table_rows, rotary]:
 * cosines, then sines. Returns 1, without any effect, if a position is not in the table. */
int rope(const float *query, const float *key, const float *table, const int64_t *positions,
          float *query_out, float *key_out, int64_t tokens, int64_t query_heads, int64_t key_heads,
          int64_t rotary, int64_t query_stride, int64_t key_stride, int64_t interleaved,
         int64_t split_halves, int64_t table_rows) {
    for (int64_t token = 0; token < tokens; token++)
        if (positions[token] < 0 || positions[token] >= table_rows) return 1;
    struct rotation a = {
        .x = {query, key},
        .table = table,
        .y = {query_out, key_out},
        .stride = {query_stride, key_stride},
        .heads = {query_heads, key_heads},
        .positions = positions,
        .rotary = rotary,
        .interleaved = interleaved,
        .split_halves = split_halves,
    };
    share(rotate_token, &a, tokens, 4.0 * tokens * (query_heads + key_heads) * rotary);
    return 0;
}

struct writing {
    const float *rows;
    float *cache;
    const int64_t *slots;
    int64_t tokens, width, row_stride, slot_stride;
};

#define TOKENS_AN_ITEM 32

static void write_tokens(const void *arguments, int64_t item) {
    const struct writing *a = arguments;
    int64_t token = item * TOKENS_AN_ITEM, end = token + TOKENS_AN_ITEM;
    for (; token < end && token < a->tokens; token++)
        if (a->slots[token] >= 0)
            memcpy(a->cache + a->slots[token] * a->slot_stride, a->rows + token * a->row_stride,
                   a->width * sizeof(float));
}

/* cache[slot] = row for rows of `width` floats; slots below 0 are skipped, no other comes twice.
 * Returns 1, without any effect, if a slot is not below `slots_end`. */
int write_rows(const float *rows, float *cache, const int64_t *slots, int64_t tokens,
                int64_t width, int64_t row_stride, int64_t slot_stride, int64_t slots_end) {
    for (int64_t token = 0; token < tokens; token++)
        if (slots[token] >= slots_end) return 1;
    struct writing a = {rows, cache, slots, tokens, width, row_stride, slot_stride};
    share(write_tokens, &a, (tokens + TOKENS_AN_ITEM - 1) / TOKENS_AN_ITEM, 1.0 * tokens * width);
    return 0;
}
