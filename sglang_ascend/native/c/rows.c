/* Norm, activation and quantisation of rows of float32. */
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

static void quantise_row(const void *arguments, int64_t row) {
    const struct quantisation *a = arguments;
    const float *x = a->x + row * a->x_stride;
    int8_t *q = a->q + row * a->width;
    int64_t i, whole = a->width - a->width % LANES;
    vec largest = splat(0);
    for (i = 0; i < whole; i += LANES) {
        vec magnitude = (vec)((ivec)load(x + i) & 0x7fffffff);
        ivec more = magnitude > largest;
        largest = (vec)(((ivec)magnitude & more) | ((ivec)largest & ~more));
    }
    float most = 0;
    for (int lane = 0; lane < LANES; lane++) most = largest[lane] > most ? largest[lane] : most;
    for (; i < a->width; i++) most = __builtin_fabsf(x[i]) > most ? __builtin_fabsf(x[i]) : most;
    float scale = most / 127.0f, divisor = scale == 0 ? 1.0f : scale;
    a->scale[row] = scale;
    /* A true division and rounding of halves to even, as the reference does, in every bit. The
     * quotient of a row with denormal scale may exceed 127 by rounding of the scale. */
    for (i = 0; i < a->width; i++) {
        float rounded = (x[i] / divisor + 12582912.0f) - 12582912.0f;
        rounded = rounded > 127.0f ? 127.0f : rounded < -127.0f ? -127.0f : rounded;
        q[i] = (int8_t)(int32_t)rounded;
    }
}

/* x [rows, width] with a stride of rows -> q [rows, width] int8 dense and scale [rows]. */
void dynamic_quant(const float *x, int8_t *q, float *scale, int64_t rows, int64_t width,
                   int64_t x_stride) {
    struct quantisation a = {x, q, scale, width, x_stride};
    share(quantise_row, &a, rows, 2.0 * rows * width);
}
