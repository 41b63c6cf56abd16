/* A writer of checkpoints: its options, its pool of blocks, its limits. */
#include "checkpoint/write/writer.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/options.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALL_TIMEOUT_MS 600000u
#define WAIT_SLICE_NS 50000000ull
/* The scheduler gives a thread of this priority 3 percent of a core that others want, too: else a
 * core that trains waits for the hash of a block, whatever the share is over a second. */
#define LIMITED_NICE 15

static int check_percent(uint32_t cpu_percent_max, struct stoker_error *error)
{
    if (cpu_percent_max <= 100) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "a CPU share of more than 100 percent",
                    "use 1 to 100, or 0 for no limit", "cpu_percent_max %u", cpu_percent_max);
}

static int check_options(const struct stoker_checkpoint_writer_options *options,
                         struct stoker_error *error)
{
    if (!options->path) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no path",
                        "name a folder, s3://, gs:// or az://", "checkpoint writer options");
    }
    if (options->threads > STK_WRITER_THREADS_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many threads", "use at most 64",
                        "threads %u", options->threads);
    }
    if (options->memory_bytes_max > 0 && options->memory_bytes_max < STK_WRITER_MEMORY_BYTES_MIN) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too little memory for checkpoints",
                        "give at least 64 MiB", "memory_bytes_max %llu",
                        (unsigned long long)options->memory_bytes_max);
    }
    return check_percent(options->cpu_percent_max, error);
}

int stoker_checkpoint_writer_open(struct stoker_checkpoint_writer **writer_out,
                                  struct stoker_engine *engine,
                                  const struct stoker_checkpoint_writer_options *given,
                                  struct stoker_error *error)
{
    struct stoker_checkpoint_writer_options options;
    struct stoker_checkpoint_writer *writer;
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "checkpoint writer options", error);

    status = status < 0 ? status : check_options(&options, error);
    status = status < 0 ? status : stk_engine_check(engine, error);
    if (status < 0) {
        return status;
    }
    writer = stk_alloc(1, sizeof *writer);
    if (!writer) {
        return stk_fail_memory(error, "checkpoint writer");
    }
    status = stk_place_init(&writer->place, engine->io, options.path, true, error);
    if (status < 0) {
        stk_free(writer);
        return status;
    }
    options.memory_bytes_max = options.memory_bytes_max ? options.memory_bytes_max
                                                        : stk_max(stk_cgroup_available_memory() / 4,
                                                                  STK_WRITER_MEMORY_BYTES_MIN);
    writer->blocks_max =
        (uint32_t)stk_min(options.memory_bytes_max / STK_SAFETENSORS_BLOCK_BYTES, UINT32_MAX);
    writer->threads = options.threads ? options.threads
                      : writer->place.remote
                          ? STK_WRITER_UPLOAD_THREADS
                          : (uint32_t)stk_min(2 * engine->cores, STK_WRITER_LOCAL_THREADS);
    writer->threads = (uint32_t)stk_min(stk_max(writer->threads, 1), writer->blocks_max - 1);
    writer->locked.bytes_per_s_max = options.bytes_per_s_max;
    writer->locked.cpu_percent_max = options.cpu_percent_max;
    writer->shared_bytes_min = STK_SHARED_BYTES_MIN;
    writer->call_timeout_ms = options.call_timeout_ms ? options.call_timeout_ms : CALL_TIMEOUT_MS;
    writer->references = 1;
    pthread_mutex_init(&writer->lock, NULL);
    stk_cond_init(&writer->freed);
    stk_engine_retain(engine);
    writer->engine = engine;
    *writer_out = writer;
    return 0;
}

void stk_checkpoint_previous_free(struct stk_checkpoint_previous *previous)
{
    if (previous) {
        for (uint32_t i = 0; i < STK_SAVE_FILES; i++) {
            stk_safetensors_deinit(&previous->layouts[i]);
            stk_free(previous->unchanged[i]);
        }
        stk_free(previous);
    }
}

void stk_writer_release(struct stoker_checkpoint_writer *writer)
{
    struct stk_checkpoint_block *block;

    if (atomic_fetch_sub(&writer->references, 1) > 1) {
        return;
    }
    while ((block = writer->locked.free) != NULL) {
        writer->locked.free = block->next;
        stk_pages_free(block->data, STK_SAFETENSORS_BLOCK_BYTES);
        stk_free(block);
    }
    stk_checkpoint_previous_free(writer->locked.previous);
    pthread_cond_destroy(&writer->freed);
    pthread_mutex_destroy(&writer->lock);
    stk_place_deinit(&writer->place);
    stk_engine_release(writer->engine);
    stk_free(writer);
}

void stoker_checkpoint_writer_close(struct stoker_checkpoint_writer *writer)
{
    if (writer && stk_engine_check(writer->engine, NULL) == 0) {
        stk_writer_release(writer);
    }
}

static struct stk_checkpoint_block *new_block(void)
{
    struct stk_checkpoint_block *block = stk_alloc(1, sizeof *block);

    if (block) {
        block->data = stk_pages_alloc_huge(STK_SAFETENSORS_BLOCK_BYTES);
        if (!block->data) {
            stk_free(block);
            block = NULL;
        }
    }
    return block;
}

struct stk_checkpoint_block *stk_writer_take_block(struct stoker_checkpoint_writer *writer,
                                                   uint32_t wait_ms)
{
    struct timespec until = stk_engine_deadline((uint64_t)wait_ms * 1000000u);
    struct stk_checkpoint_block *block = NULL;
    bool late = false, grow = false;

    pthread_mutex_lock(&writer->lock);
    while (!writer->locked.free && writer->locked.allocated >= writer->blocks_max && !late) {
        late = pthread_cond_timedwait(&writer->freed, &writer->lock, &until) == ETIMEDOUT;
    }
    block = writer->locked.free;
    if (block) {
        writer->locked.free = block->next;
    } else if (writer->locked.allocated < writer->blocks_max) {
        writer->locked.allocated++;
        grow = true;
    }
    pthread_mutex_unlock(&writer->lock);
    if (grow) {
        block = new_block();
        if (!block) { /* fewer blocks will do, if there are any */
            pthread_mutex_lock(&writer->lock);
            writer->locked.allocated--;
            pthread_mutex_unlock(&writer->lock);
        }
    }
    return block;
}

void stk_writer_fill_pool(struct stoker_checkpoint_writer *writer, uint64_t blocks,
                          const _Atomic bool *stopping)
{
    bool grow = true;

    while (grow && !atomic_load_explicit(stopping, memory_order_relaxed)) {
        struct stk_checkpoint_block *block = NULL;

        pthread_mutex_lock(&writer->lock);
        grow = writer->locked.allocated < stk_min(blocks, writer->blocks_max);
        writer->locked.allocated += grow;
        pthread_mutex_unlock(&writer->lock);
        if (grow) {
            block = new_block();
        }
        if (block) {
            for (size_t at = 0; at < STK_SAFETENSORS_BLOCK_BYTES; at += STK_IO_ALIGN) {
                ((volatile uint8_t *)block->data)[at] = 0; /* the kernel provides the page */
            }
            stk_writer_give_block(writer, block);
        } else if (grow) { /* no memory: the blocks that are there suffice */
            pthread_mutex_lock(&writer->lock);
            writer->locked.allocated--;
            pthread_mutex_unlock(&writer->lock);
            grow = false;
        }
    }
}

bool stk_writer_has_no_memory(struct stoker_checkpoint_writer *writer)
{
    bool none;

    pthread_mutex_lock(&writer->lock);
    none = writer->locked.allocated == 0;
    pthread_mutex_unlock(&writer->lock);
    return none;
}

void stk_writer_give_block(struct stoker_checkpoint_writer *writer,
                           struct stk_checkpoint_block *block)
{
    pthread_mutex_lock(&writer->lock);
    block->next = writer->locked.free;
    writer->locked.free = block;
    pthread_cond_broadcast(&writer->freed);
    pthread_mutex_unlock(&writer->lock);
}

uint64_t stk_writer_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void stk_writer_lower_priority(struct stoker_checkpoint_writer *writer)
{
    bool limited;

    pthread_mutex_lock(&writer->lock);
    limited = writer->locked.cpu_percent_max > 0;
    pthread_mutex_unlock(&writer->lock);
    if (limited) { /* without effect where a filter forbids it; of this thread only (Linux) */
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LIMITED_NICE);
    }
}

/* Returns when this write may begin, and moves the turn of the next one by the cost of this one. */
static uint64_t take_turn(uint64_t *turn_ns, uint64_t now_ns, double cost_ns)
{
    uint64_t turn = stk_max(now_ns, *turn_ns);

    *turn_ns = turn + (uint64_t)cost_ns;
    return turn;
}

void stk_writer_throttle(struct stoker_checkpoint_writer *writer, uint64_t bytes, uint64_t cpu_ns,
                         const _Atomic bool *stopping)
{
    uint64_t now_ns = stk_engine_now(writer->engine), turn_ns = 0;
    double cores = (double)stk_max(writer->engine->cores, 1);
    uint32_t changes;

    pthread_mutex_lock(&writer->lock);
    changes = writer->locked.changes;
    if (writer->locked.bytes_per_s_max > 0) {
        turn_ns = take_turn(&writer->locked.rate_turn_ns, now_ns,
                            (double)bytes * 1e9 / (double)writer->locked.bytes_per_s_max);
    }
    if (writer->locked.cpu_percent_max > 0) {
        double share = writer->locked.cpu_percent_max / 100.0 * cores;

        turn_ns = stk_max(turn_ns,
                          take_turn(&writer->locked.cpu_turn_ns, now_ns, (double)cpu_ns / share));
    }
    while (now_ns < turn_ns && changes == writer->locked.changes &&
           !atomic_load_explicit(stopping, memory_order_relaxed)) {
        struct timespec until = stk_engine_deadline(stk_min(turn_ns - now_ns, WAIT_SLICE_NS));

        (void)pthread_cond_timedwait(&writer->freed, &writer->lock, &until);
        now_ns = stk_engine_now(writer->engine);
    }
    pthread_mutex_unlock(&writer->lock);
}

int stoker_checkpoint_writer_set_limits(struct stoker_checkpoint_writer *writer,
                                        uint64_t bytes_per_s_max, uint32_t cpu_percent_max,
                                        struct stoker_error *error)
{
    int status = stk_engine_check(writer->engine, error);

    status = status < 0 ? status : check_percent(cpu_percent_max, error);
    if (status == 0) {
        pthread_mutex_lock(&writer->lock);
        writer->locked.bytes_per_s_max = bytes_per_s_max;
        writer->locked.cpu_percent_max = cpu_percent_max;
        writer->locked.rate_turn_ns = writer->locked.cpu_turn_ns = 0;
        writer->locked.changes++;
        pthread_cond_broadcast(&writer->freed);
        pthread_mutex_unlock(&writer->lock);
    }
    return status;
}
