/* Product of float32 rows with the weight of their expert, weights as checkpoints have them.
 *
 * A weight [outs, in] is read along its rows: an output is a dot product of two contiguous rows, so
 * nothing is packed, and an embedding can serve as the output layer too. A tile of rows by outputs
 * has as many independent sums as there are registers for. */
#include "common.h"

#ifdef __AVX512F__ /* 32 registers, else 16 */
#define ROWS 8
#else
#define ROWS 4
#endif
#define OUTS 3
#define WIDEST 4 /* outputs that one row alone reads side by side */
#define OUTS_AN_ITEM 24

struct product {
    const float *x, *weight, *bias;
    float *y;
    const int64_t *ends; /* rows end of each expert */
    int64_t in, outs, x_stride, weight_stride, expert_stride, items_an_expert;
};

#if defined(__AMX_BF16__) && defined(__AVX512BW__)
#define AMX
#include "float_amx.h"
#endif

/* Rows up to which this is the kernel to take; beyond them oneDNN is faster, but for AMX. */
int64_t float_matmul_most_rows(void) {
#ifdef AMX
    if (amx_allowed()) return INT64_MAX;
#endif
    return 48;
}

/* `pass` of `passes` over these weights: each fetches its part of the next outputs' weights, since
 * the hardware's own prefetch ends at a page of 4 KiB. */
INLINE void tile(const struct product *a, const float *weight, int64_t row, int64_t out,
                 int64_t pass, int64_t passes, const int rows, const int outs) {
    const float *x = a->x + row * a->x_stride, *w = weight + out * a->weight_stride;
    const int64_t whole = a->in - a->in % LANES, width = a->weight_stride * sizeof *w;
    const char *next = (const char *)w + outs * width + pass * a->in * sizeof *w / passes;
    const int64_t pace = LANES * sizeof *w / passes;
    vec acc[ROWS][WIDEST];
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < outs; n++) acc[r][n] = splat(0);
    for (int64_t k = 0; k < whole; k += LANES) {
        vec part[WIDEST];
        for (int n = 0; n < outs; n++) {
            part[n] = load(w + n * a->weight_stride + k);
            __builtin_prefetch(next + n * width, 0, 2);
        }
        next += pace;
        for (int r = 0; r < rows; r++) {
            vec row_part = in_register(load(x + r * a->x_stride + k));
            for (int n = 0; n < outs; n++) acc[r][n] += row_part * part[n];
        }
    }
    for (int n = 0; n < outs; n++) {
        vec column[ROWS];
        float sums[ROWS];
        for (int r = 0; r < rows; r++) column[r] = acc[r][n];
        sum_lanes_of(column, sums, rows);
        for (int r = 0; r < rows; r++) {
            float sum = sums[r];
            for (int64_t k = whole; k < a->in; k++)
                sum += x[r * a->x_stride + k] * w[n * a->weight_stride + k];
            if (a->bias) sum += a->bias[out + n];
            a->y[(row + r) * a->outs + out + n] = sum;
        }
    }
}

/* All rows of an expert times one group of outputs: the weights come from memory once, while the
 * rows, which are few, stay in the cache. */
INLINE void rows_of_outs(const struct product *a, const float *weight, int64_t row, int64_t end,
                         int64_t out, const int outs) {
    int64_t pass = 0, passes = (end - row + ROWS - 1) / ROWS;
    for (; row + ROWS <= end; row += ROWS) tile(a, weight, row, out, pass++, passes, ROWS, outs);
    for (; row + 4 <= end; row += 4) tile(a, weight, row, out, pass, passes, 4, outs);
    switch (end - row) {
        case 3: tile(a, weight, row, out, pass, passes, 3, outs); break;
        case 2: tile(a, weight, row, out, pass, passes, 2, outs); break;
        case 1: tile(a, weight, row, out, pass, passes, 1, outs); break;
    }
}

static void some_outs(const void *arguments, int64_t item) {
    const struct product *a = arguments;
    int64_t expert = item / a->items_an_expert;
    int64_t out = item % a->items_an_expert * OUTS_AN_ITEM, stop = out + OUTS_AN_ITEM;
    int64_t row = expert ? a->ends[expert - 1] : 0, end = a->ends[expert];
    const float *weight = a->weight + expert * a->expert_stride;
    if (stop > a->outs) stop = a->outs;
    /* One row alone is bound by the memory, which serves several streams better than one. */
    if (end - row == 1)
        for (; out + WIDEST <= stop; out += WIDEST) tile(a, weight, row, out, 0, 1, 1, WIDEST);
    for (; out + OUTS <= stop; out += OUTS) rows_of_outs(a, weight, row, end, out, OUTS);
    for (; out < stop; out++) rows_of_outs(a, weight, row, end, out, 1);
}

/* x [rows, in], rows sorted by expert; weight [experts, outs, in], rows of both at a stride;
 * bias [outs] or null, for one expert only; y [rows, outs] dense. */
void float_matmul(const float *x, const float *weight, const float *bias, const int64_t *ends,
                  float *y, int64_t experts, int64_t in, int64_t outs, int64_t x_stride,
                  int64_t weight_stride, int64_t expert_stride) {
    struct product a = {
        .x = x,
        .weight = weight,
        .bias = bias,
        .y = y,
        .ends = ends,
        .in = in,
        .outs = outs,
        .x_stride = x_stride,
        .weight_stride = weight_stride,
        .expert_stride = expert_stride,
        .items_an_expert = (outs + OUTS_AN_ITEM - 1) / OUTS_AN_ITEM,
    };
#ifdef AMX
    if (experts == 1 && ends[0] >= AMX_FROM && amx_allowed()) {
        amx_matmul(&a, ends[0]);
        return;
    }
#endif
    share(some_outs, &a, experts * a.items_an_expert, 1.0 * ends[experts - 1] * in * outs / LANES);
}
