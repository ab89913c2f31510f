/* Norm, activation, quantisation and largest element of rows of float32. */
#include "common.h"

#define ROWS_AN_ITEM 8

struct norm {
    const float *x, *residual, *weight;
    float *y, *total;
    int64_t rows, width, x_stride;
    float eps;
};

INLINE void norm_row(const struct norm *n, int64_t row) {
    const float *x = n->x + row * n->x_stride;
    float *y = n->y + row * n->width;
    int64_t i, whole = n->width - n->width % LANES;
    if (n->residual) {
        const float *residual = n->residual + row * n->width;
        float *total = n->total + row * n->width;
        for (i = 0; i < n->width; i++) total[i] = x[i] + residual[i];
        x = total;
    }
    vec squares = splat(0);
    for (i = 0; i < whole; i += LANES) squares += load(x + i) * load(x + i);
    float sum = sum_lanes(squares);
    for (; i < n->width; i++) sum += x[i] * x[i];
    float inverse = 1.0f / __builtin_sqrtf(sum / (float)n->width + n->eps);
    for (i = 0; i < n->width; i++) y[i] = x[i] * inverse * n->weight[i];
}

static void norm_rows(const void *arguments, int64_t item) {
    const struct norm *n = arguments;
    int64_t end = (item + 1) * ROWS_AN_ITEM;
    for (int64_t row = item * ROWS_AN_ITEM; row < end && row < n->rows; row++) norm_row(n, row);
}

/* x [rows, width] with a stride of rows, residual (may be null), total and y dense. */
void rms_norm(const float *x, const float *residual, const float *weight, float *y, float *total,
              int64_t rows, int64_t width, int64_t x_stride, float eps) {
    struct norm n = {x, residual, weight, y, total, rows, width, x_stride, eps};
    share(norm_rows, &n, (rows + ROWS_AN_ITEM - 1) / ROWS_AN_ITEM, 1.0 * rows * width);
}

struct activation {
    const float *x;
    float *y;
    int64_t rows, width;
};

static void swiglu_row(const void *arguments, int64_t row) {
    const struct activation *a = arguments;
    const float *gate = a->x + row * 2 * a->width, *up = gate + a->width;
    float *y = a->y + row * a->width;
    int64_t i;
    for (i = 0; i + LANES <= a->width; i += LANES) {
        vec g = load(gate + i);
        /* exp_lanes takes at most 88; beyond it the quotient is 0 to float32 anyway. */
        ivec huge = -g > splat(88.0f);
        vec e = exp_lanes((vec)(((ivec)-g & ~huge) | ((ivec)splat(88.0f) & huge)));
        store(y + i, g / (splat(1.0f) + e) * load(up + i));
    }
    for (; i < a->width; i++) y[i] = gate[i] / (1.0f + __builtin_expf(-gate[i])) * up[i];
}

/* x [rows, 2 * width] dense -> y [rows, width] = silu(first half) * second half. */
void swiglu(const float *x, float *y, int64_t rows, int64_t width) {
    struct activation a = {x, y, rows, width};
    share(swiglu_row, &a, rows, 8.0 * rows * width);
}

struct quantisation {
    const float *x;
    int8_t *q;
    float *scale;
    int64_t width, x_stride;
};

typedef int8_t bytes __attribute__((vector_size(LANES)));

/* A true division and rounding of halves to even, as the reference does, in every bit. The quotient
 * of a row with denormal scale may exceed 127 by rounding of the scale. */
INLINE bytes quantised(vec x, float divisor) {
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    ivec rounded = __builtin_convertvector((x / splat(divisor) + magic) - magic, ivec);
    ivec over = rounded > 127, under = rounded < -127;
    rounded = (over & 127) | (under & -127) | (rounded & ~(over | under));
    return __builtin_convertvector(rounded, bytes);
}

static void quantise_row(const void *arguments, int64_t row) {
    const struct quantisation *a = arguments;
    const float *x = a->x + row * a->x_stride;
    int8_t *q = a->q + row * a->width;
    int64_t i, whole = a->width - a->width % LANES;
    vec largest = splat(0);
    for (i = 0; i < whole; i += LANES) {
        vec magnitude = (vec)((ivec)load(x + i) & 0x7fffffff);
        largest = larger(largest, magnitude);
    }
    float most = largest_lane(largest, 0);
    for (; i < a->width; i++) most = __builtin_fabsf(x[i]) > most ? __builtin_fabsf(x[i]) : most;
    float scale = most / 127.0f, divisor = scale == 0 ? 1.0f : scale;
    a->scale[row] = scale;
    for (i = 0; i < whole; i += LANES) {
        bytes narrow = quantised(load(x + i), divisor);
        memcpy(q + i, &narrow, LANES);
    }
    if (i < a->width) {
        float rest[LANES] = {0};
        memcpy(rest, x + i, (a->width - i) * sizeof(float));
        bytes narrow = quantised(load(rest), divisor);
        memcpy(q + i, &narrow, a->width - i);
    }
}

/* x [rows, width] with a stride of rows -> q [rows, width] int8 dense and scale [rows]. */
void dynamic_quant(const float *x, int8_t *q, float *scale, int64_t rows, int64_t width,
                   int64_t x_stride) {
    struct quantisation a = {x, q, scale, width, x_stride};
    share(quantise_row, &a, rows, 2.0 * rows * width);
}

struct choice {
    const float *x;
    int64_t *index;
    int64_t width, x_stride;
};

static void largest_of_row(const void *arguments, int64_t row) {
    const struct choice *a = arguments;
    const float *x = a->x + row * a->x_stride;
    /* First how large, then where: of equals the first, and the first NaN before any number. */
    int64_t i = 0, best = 0, whole = a->width - a->width % LANES;
    vec most = splat(-__builtin_inff());
    ivec ordered = ~(ivec){0};
    for (; i < whole; i += LANES) {
        vec v = load(x + i);
        most = larger(most, v);
        ordered &= v == v;
    }
    float top = largest_lane(most, -__builtin_inff());
    int all_ordered = 1;
    for (int lane = 0; lane < LANES; lane++) all_ordered &= ordered[lane] != 0;
    for (; i < a->width; i++) {
        top = x[i] > top ? x[i] : top;
        all_ordered &= x[i] == x[i];
    }
    if (all_ordered)
        while (x[best] != top) best++;
    else
        while (x[best] == x[best]) best++;
    a->index[row] = best;
}

/* index [rows] of the largest of x [rows, width] with a stride of rows; of equals, the first. */
void argmax(const float *x, int64_t *index, int64_t rows, int64_t width, int64_t x_stride) {
    struct choice a = {x, index, width, x_stride};
    share(largest_of_row, &a, rows, 0.3 * rows * width);
}
