/* The largest of many float32 dot products, most of which need not be computed exactly. */
#include "common.h"

struct screening {
    const float *rough, *bound, *x, *weight;
    float *logits;
    int64_t rows, in, outs, x_stride, weight_stride;
};

/* As a tile of float_matmul sums, in every bit. */
static float dot(const float *x, const float *w, int64_t in) {
    int64_t k, whole = in - in % LANES;
    vec acc = splat(0);
    for (k = 0; k < whole; k += LANES) acc += load(x + k) * load(w + k);
    float sum = sum_lanes(acc);
    for (; k < in; k++) sum += x[k] * w[k];
    return sum;
}

static void screen_row(const void *arguments, int64_t row) {
    const struct screening *a = arguments;
    const float *high = a->rough + row * a->outs, *low = high + a->rows * a->outs;
    const float *x = a->x + row * a->x_stride;
    float *logits = a->logits + row * a->outs, floor = -__builtin_inff();
    double squares = 0;
    for (int64_t k = 0; k < a->in; k++) squares += (double)x[k] * x[k];
    const float norm = (float)(__builtin_sqrt(squares) * (1 + 1e-6));
    int64_t n = 0, whole = a->outs - a->outs % LANES;
    vec floors = splat(floor);
    for (; n < whole; n += LANES)
        floors = larger(floors, load(high + n) + load(low + n) - load(a->bound + n) * splat(norm));
    floor = largest_lane(floors, floor);
    for (; n < a->outs; n++) {
        float least = high[n] + low[n] - a->bound[n] * norm;
        floor = least > floor ? least : floor;
    }
    for (n = 0; n < a->outs; n++) {
        /* Not `>=`: what is not a number is computed, and found by whoever looks for it. */
        int out_of_reach = high[n] + low[n] + a->bound[n] * norm < floor;
        logits[n] = -__builtin_inff();
        if (!out_of_reach) logits[n] = dot(x, a->weight + n * a->weight_stride, a->in);
    }
}

/* logits [rows, outs] of x [rows, in] and weight [outs, in]: exact where they can be the largest of
 * their row, -inf elsewhere. rough [2, rows, outs]: two parts, whose sum is off by less than
 * bound [outs] times the norm of the row. */
void screened_logits(const float *rough, const float *bound, const float *x, const float *weight,
                     float *logits, int64_t rows, int64_t in, int64_t outs, int64_t x_stride,
                     int64_t weight_stride) {
    struct screening a = {rough, bound, x, weight, logits, rows, in, outs, x_stride, weight_stride};
    share(screen_row, &a, rows, 2.0 * rows * outs);
}
