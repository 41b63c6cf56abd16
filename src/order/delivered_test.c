/* Goal: deferred steps add up to the same fingerprint as steps that are added one by one, wherever
 * states, ends of epochs and jumps are between them; they are deferred: no sample is enumerated
 * earlier.
 * Method: random streams of every tail, workers and world sizes, evaluated at random, also while
 * steps are added to the original of a copy; runs are counted; for a world of a million ranks only
 * the spans are compared. */
#include "order/delivered.h"

#include "base/random.h"
#include "test/t.h"

struct stream {
    struct stk_order order;
    struct stk_partition partition;
    struct stk_delivered given;
    uint64_t epoch, position, sum; /* sum: step by step */
};

static void open_stream(struct stream *stream, uint64_t samples, uint32_t batch, uint32_t world,
                        uint32_t tail, uint32_t workers)
{
    struct stk_order_options order = {.sample_count = samples,
                                      .block_samples = 4,
                                      .window_blocks = 3,
                                      .group_count = 1,
                                      .shuffle = STOKER_SHUFFLE_BLOCK,
                                      .seed = 5};

    *stream = (struct stream){.partition = {.sample_count = samples,
                                            .batch_size = batch,
                                            .world_size = world,
                                            .tail = tail,
                                            .group_count = 1,
                                            .worker = workers - 1,
                                            .worker_count = workers}};
    T_EQ("order", stk_order_init(&stream->order, &order, NULL), 0);
    T_EQ("partition", stk_partition_check(&stream->partition, NULL), 0);
    stream->position = stk_partition_first(&stream->partition, 0);
}

static uint64_t print_of(const struct stream *stream, uint64_t epoch, uint64_t position)
{
    return stk_partition_fingerprint(&stream->partition, &stream->order, epoch, position);
}

static uint64_t sum_of(const struct stream *stream, const struct stk_delivered *given)
{
    struct stk_delivered left = *given;
    struct stk_delivered_span span;
    uint64_t sum = 0;

    while (stk_delivered_next(&left, &stream->partition, &span)) {
        for (uint64_t i = 0; i < span.steps; i++) {
            sum += print_of(stream, span.epoch,
                            span.position + i * stk_partition_stride(&stream->partition));
        }
    }
    return sum;
}

static void step(struct stream *stream)
{
    const struct stk_partition *partition = &stream->partition;

    while (stk_partition_steps_from(partition, stream->epoch, stream->position) == 0) {
        stream->position =
            stk_partition_next_epoch_start(partition, stream->epoch, stream->position);
        stream->epoch++;
    }
    stream->sum += print_of(stream, stream->epoch, stream->position);
    if (!stk_delivered_add(&stream->given, partition, stream->epoch, stream->position)) {
        struct stk_delivered copy = stream->given;

        stk_delivered_fold(&stream->given, &copy, sum_of(stream, &copy));
        T_TRUE("room again",
               stk_delivered_add(&stream->given, partition, stream->epoch, stream->position));
    }
    stream->position += stk_partition_stride(partition);
}

static void test_random(uint64_t key)
{
    static struct stream stream;
    uint64_t drawn = 0;
    bool same = true;

    open_stream(&stream, 20 + stk_random_key(key, drawn++) % 50, (uint32_t)(1 + key % 5),
                (uint32_t)(1 + key % 3), (uint32_t)(STOKER_TAIL_DROP + key % 4),
                (uint32_t)(1 + key % 2));
    for (int i = 0; i < 500; i++) {
        uint64_t what = stk_random_key(key, drawn++) % 30;

        if (what == 0) { /* a state is requested, and the stream continues meanwhile */
            struct stk_delivered copy = stream.given;
            uint64_t before = stream.sum, sum = sum_of(&stream, &copy);

            for (uint64_t more = stk_random_key(key, drawn++) % 4; more > 0; more--) {
                if (stream.given.run_count < STK_DELIVERED_RUNS_MAX) {
                    step(&stream);
                }
            }
            same &= copy.fingerprint + sum == before;
            stk_delivered_fold(&stream.given, &copy, sum);
            same &= stream.given.fingerprint + sum_of(&stream, &stream.given) == stream.sum;
        } else if (what == 1) {
            stream.epoch = stk_random_key(key, drawn++) % 9;
            stream.position = stk_partition_first(&stream.partition, stream.epoch);
        } else {
            step(&stream);
        }
    }
    T_TRUE("the sum of all steps",
           same && stream.given.fingerprint + sum_of(&stream, &stream.given) == stream.sum);
}

/* Epochs that follow each other are one run: a year without a checkpoint needs no more room. */
static void test_epochs(void)
{
    static struct stream stream;

    for (uint32_t tail = STOKER_TAIL_DROP; tail <= STOKER_TAIL_KEEP; tail++) {
        open_stream(&stream, 103, 4, 3, tail, 1);
        for (int i = 0; i < 1000; i++) {
            step(&stream);
        }
        T_EQ("one run", stream.given.run_count, 1);
        T_EQ("of all steps", stream.given.runs[0].steps, 1000);
        T_TRUE("nothing is worked out", stream.given.fingerprint == 0);
        T_TRUE("until it is requested", sum_of(&stream, &stream.given) == stream.sum);
    }
}

static void test_full(void)
{
    static struct stream stream;

    open_stream(&stream, 40, 4, 1, STOKER_TAIL_DROP, 1);
    for (uint64_t i = 0; i < STK_DELIVERED_RUNS_MAX; i++) {
        T_TRUE("room", stk_delivered_add(&stream.given, &stream.partition, 3 * i, 0));
    }
    T_TRUE("one jump too many", !stk_delivered_add(&stream.given, &stream.partition, 1000, 0));
    T_EQ("changes nothing", stream.given.run_count, STK_DELIVERED_RUNS_MAX);
    T_TRUE("but the last run goes on", stk_delivered_add(&stream.given, &stream.partition,
                                                         3 * (STK_DELIVERED_RUNS_MAX - 1), 4));
}

/* From one position to a later one: how far a state is behind the stream. */
static void test_between(void)
{
    static struct stream stream;
    struct stk_delivered between;
    struct stk_delivered_span from = {.steps = 20}, to;
    uint64_t before;

    open_stream(&stream, 30, 4, 1, STOKER_TAIL_WRAP, 1);
    for (int i = 0; i < 5; i++) {
        step(&stream);
    }
    from.epoch = stream.epoch;
    from.position = stream.position;
    before = stream.sum;
    for (int i = 0; i < 9; i++) { /* over the end of an epoch */
        step(&stream);
    }
    to = (struct stk_delivered_span){.epoch = stream.epoch, .position = stream.position};
    T_TRUE("it leads there", stk_delivered_between(&between, &stream.partition, &from, &to));
    T_TRUE("by these steps", sum_of(&stream, &between) == stream.sum - before);
    T_TRUE("not back", !stk_delivered_between(&between, &stream.partition, &to, &from));
    from.steps = 8;
    T_TRUE("too large", !stk_delivered_between(&between, &stream.partition, &from, &to));
}

/* 10^6 ranks of 64 samples: a step's part takes a second, giving it must not. */
static void test_large_world(void)
{
    static struct stream stream;
    struct stk_delivered_span span;

    open_stream(&stream, UINT64_C(1) << 50, 64, 1000000, STOKER_TAIL_DROP, 1);
    for (uint64_t i = 0; i < 100000; i++) {
        stk_delivered_add(&stream.given, &stream.partition, 0, i * 64000000);
    }
    T_EQ("one run", stream.given.run_count, 1);
    T_TRUE("one span", stk_delivered_next(&stream.given, &stream.partition, &span));
    T_EQ("of all", span.steps, 100000);
    T_TRUE("and no other", !stk_delivered_next(&stream.given, &stream.partition, &span));
}

int main(void)
{
    for (uint64_t key = 0; key < 60; key++) {
        test_random(key);
    }
    test_epochs();
    test_full();
    test_between();
    test_large_world();
    return t_finish();
}
