/* What code lowered from MLIR calls on the host: copies of memrefs, rounding to 16-bit floats, and
 * the vendor's elementwise functions. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct { int64_t rank; void *descriptor; } unranked_memref;
/* sizes_and_strides: `rank` sizes, then `rank` strides, both in elements. */
typedef struct { char *allocated, *aligned; int64_t offset; int64_t sizes_and_strides[]; } memref;

static void copy_axes(int64_t rank, const int64_t *sizes, char *to, const int64_t *to_strides,
                      const char *from, const int64_t *from_strides, int64_t element) {
    if (rank == 0) {
        memcpy(to, from, element);
        return;
    }
    if (rank == 1 && to_strides[0] == 1 && from_strides[0] == 1) {
        memcpy(to, from, element * sizes[0]);
        return;
    }
    for (int64_t i = 0; i < sizes[0]; i++)
        copy_axes(rank - 1, sizes + 1, to + i * to_strides[0] * element, to_strides + 1,
                  from + i * from_strides[0] * element, from_strides + 1, element);
}

void memrefCopy(int64_t element, unranked_memref *from, unranked_memref *to) {
    memref *source = from->descriptor, *target = to->descriptor;
    int64_t rank = from->rank;
    copy_axes(rank, source->sizes_and_strides, target->aligned + target->offset * element,
              target->sizes_and_strides + rank, source->aligned + source->offset * element,
              source->sizes_and_strides + rank, element);
}

/* Round to nearest even; NaN stays NaN. The result is returned in a 16-bit float register. */
_Float16 __truncsfbf2(float value) {
    uint32_t bits;
    uint16_t rounded;
    _Float16 result;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        rounded = (bits >> 16) | 0x40;
    else
        rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    memcpy(&result, &rounded, sizeof result);
    return result;
}

#define VENDOR(name, function) \
    float _mlir_ciface___hmf_##name(float x) { return function(x); }
VENDOR(tanhf, tanhf)
VENDOR(expm1f, expm1f)
VENDOR(log1pf, log1pf)
VENDOR(roundf, roundf)
VENDOR(rintf, rintf)
