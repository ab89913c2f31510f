/* Use of AMX, whose registers are eight tiles of 16 rows by 64 bytes. */
#ifndef SGLANG_ASCEND_AMX_H
#define SGLANG_ASCEND_AMX_H

#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

/* Whether this process may use the registers; Linux wants to be asked. */
static int amx_allowed(void) {
    const long request_permission = 0x1023, tile_data = 18;
    static int answer; /* 0 before the question */
    if (!answer) answer = syscall(SYS_arch_prctl, request_permission, tile_data) ? -1 : 1;
    return answer > 0;
}

/* Whole tiles, in this thread until _tile_release. */
INLINE void amx_begin(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) shape.bytes[tile] = 64, shape.rows[tile] = 16;
    _tile_loadconfig(&shape);
}

#endif
