/* Tiles of the INT8 product with AMX, for rows enough to fill its registers of 16 by 64 bytes.
 *
 * Weights and rows are those of the VNNI tile, whose layout is that of AMX. */
#include "amx.h"

#define AMX_ROWS 16
#define AMX_FROM 3    /* rows of an expert, from which it is the faster one */
#define AMX_GROUPS 16 /* groups of four elements that one instruction takes */

/* sums [2 * 16][2 * 16] of 16 or 32 rows and one or two blocks, with their excess. Rows behind the
 * last one are read as well, and their sums mean nothing. */
INLINE void amx_sums(const uint8_t *x, int64_t x_stride, const int8_t *w, int64_t block_bytes,
                     int64_t groups, int32_t sums[][2 * OUTS], const int high, const int wide) {
    const int64_t line = 4 * OUTS, width = 2 * OUTS * sizeof(int32_t);
    _tile_zero(0);
    if (wide) _tile_zero(1);
    if (high) _tile_zero(2);
    if (high && wide) _tile_zero(3);
    for (int64_t g = 0; g < groups; g += AMX_GROUPS) {
        _tile_loadd(4, x + 4 * g, x_stride);
        _tile_loadd(6, w + g * line, line);
        _tile_dpbusd(0, 4, 6);
        if (wide) {
            _tile_loadd(7, w + block_bytes + g * line, line);
            _tile_dpbusd(1, 4, 7);
        }
        if (high) {
            _tile_loadd(5, x + AMX_ROWS * x_stride + 4 * g, x_stride);
            _tile_dpbusd(2, 5, 6);
            if (wide) _tile_dpbusd(3, 5, 7);
        }
    }
    _tile_stored(0, sums, width);
    if (wide) _tile_stored(1, (int32_t *)sums + OUTS, width);
    if (high) _tile_stored(2, sums + AMX_ROWS, width);
    if (high && wide) _tile_stored(3, (int32_t *)(sums + AMX_ROWS) + OUTS, width);
}
