/* Work sharing over threads of this library.
 *
 * The caller works itself, and a helper that arrives in time takes items from the same counter. The
 * caller waits for items that helpers have begun, never for a helper that has not come: on a busy
 * machine OpenMP's barrier would wait for the scheduler to run every thread of the team, many
 * milliseconds for kernels of some microseconds. Helpers look for work for a short time after each
 * job, since a layer consists of many, and give way to other processes while they do. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "common.h"

#define WORTH_A_THREAD 20000.0
#define LOOKS 400 /* of about half a microsecond each */
#define MOST_HELPERS 63

/* Of the OpenMP runtime that torch has loaded: torch.set_num_threads sets it. */
extern int omp_get_max_threads(void);

static struct {
    work run;
    const void *arguments;
    int64_t items;
    atomic_long next;
    atomic_int open;    /* whether items may be taken */
    atomic_int active;  /* helpers that may be looking at the fields above */
    atomic_int wanted;  /* helpers that the job is worth */
    atomic_uint number; /* of jobs so far */
    atomic_int asleep;
    pthread_mutex_t busy, sleep;
    pthread_cond_t wake;
    int helpers;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .sleep = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER};

static void take_items(void) {
    for (;;) {
        int64_t item = atomic_fetch_add(&pool.next, 1);
        if (item >= pool.items) return;
        pool.run(pool.arguments, item);
    }
}

static void *help(void *index) {
    unsigned seen = 0;
    for (;;) {
        for (int looks = 0; atomic_load(&pool.number) == seen && looks < LOOKS; looks++)
            sched_yield();
        if (atomic_load(&pool.number) == seen) {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.asleep, 1);
            while (atomic_load(&pool.number) == seen) pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.sleep);
        }
        seen = atomic_load(&pool.number);
        /* Announced first, then looked: the caller closes first, then counts. One of the two sees
         * the other, so no helper reads a job that is being replaced. */
        atomic_fetch_add(&pool.active, 1);
        if (atomic_load(&pool.open) && (intptr_t)index < atomic_load(&pool.wanted)) take_items();
        atomic_fetch_sub(&pool.active, 1);
    }
    return 0;
}

static void forget_helpers(void) {
    /* Only the thread that called fork lives on in the child. */
    pool.helpers = 0;
    pool.open = pool.active = pool.asleep = 0;
    pthread_mutex_init(&pool.busy, 0);
    pthread_mutex_init(&pool.sleep, 0);
    pthread_cond_init(&pool.wake, 0);
}

static void start_helpers(int wanted) {
    static int watching_forks;
    if (!watching_forks) watching_forks = !pthread_atfork(0, 0, forget_helpers);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (pool.helpers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, help, (void *)(intptr_t)pool.helpers)) break;
        pool.helpers++;
    }
    pthread_attr_destroy(&detached);
}

void share(work run, const void *arguments, int64_t items, double cost) {
    int64_t threads = omp_get_max_threads();
    if (threads > MOST_HELPERS + 1) threads = MOST_HELPERS + 1;
    if (threads > items) threads = items;
    if (threads > cost / WORTH_A_THREAD) threads = (int64_t)(cost / WORTH_A_THREAD);
    if (threads <= 1 || pthread_mutex_trylock(&pool.busy)) {
        for (int64_t item = 0; item < items; item++) run(arguments, item);
        return;
    }
    start_helpers((int)threads - 1);
    pool.run = run;
    pool.arguments = arguments;
    pool.items = items;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.wanted, (int)threads - 1);
    atomic_store(&pool.open, 1);
    atomic_fetch_add(&pool.number, 1);
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    take_items();
    atomic_store(&pool.open, 0);
    while (atomic_load(&pool.active)) sched_yield();
    pthread_mutex_unlock(&pool.busy);
}
