/* The caller owns batches: it may keep them, pass them to other threads, and close them after the
 * loader. If the batches use the entire memory budget, next() returns STOKER_ERROR_BUDGET instead
 * of waiting forever.
 *
 *   cc -Iinclude examples/keep_batches.c -Lbuild -lstoker -Wl,-rpath,$PWD/build -o keep_batches
 *   ./keep_batches train/
 */
#include <stdio.h>
#include <stoker/stoker.h>

#define HELD_MAX 4096

int main(int argc, char **argv)
{
    static struct stoker_batch *held[HELD_MAX];
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_loader *loader = NULL;
    struct stoker_engine_options small = {.struct_size = sizeof small,
                                          .memory_bytes_max = 96 << 20};
    struct stoker_transform resize = {
        .kind = STOKER_RESIZE, .height = 256, .width = 256, .filter = STOKER_BILINEAR};
    struct stoker_field_options field = {
        .name = "image", .kind = STOKER_FIELD_IMAGE, .transforms = &resize, .transform_count = 1};
    struct stoker_dataset_options data = {.struct_size = sizeof data,
                                          .urls = (const char *const *)argv + 1,
                                          .url_count = (size_t)argc - 1};
    struct stoker_loader_options options = {
        .struct_size = sizeof options, .fields = &field, .field_count = 1, .batch_size = 16};
    size_t count = 0;
    int status = stoker_engine_open(&engine, &small, &error);

    if (status >= 0) {
        status = stoker_dataset_open(&dataset, engine, &data, &error);
    }
    if (status >= 0) {
        status = stoker_loader_open(&loader, dataset, &options, &error);
    }
    while (status >= 0 &&
           count < HELD_MAX) { /* 0 is the end of an epoch: the next call starts the next one */
        status = stoker_loader_next(loader, 60000, &held[count], &error);
        count += status == 1;
    }
    printf("%zu batches kept, then %s\n", count, stoker_status_name(status));
    if (status == STOKER_ERROR_BUDGET) { /* after one is closed there is memory again */
        stoker_batch_close(held[--count]);
        held[count] = NULL;
        status = stoker_loader_next(loader, 60000, &held[count], &error);
        count += status == 1;
        printf("one closed, one more read: %s\n", status < 0 ? error.what : "yes");
    } else {
        fprintf(stderr, "%s: %s\n  %s\n", error.what, error.where, error.advice);
    }
    stoker_loader_close(loader);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    while (count > 0) {
        stoker_batch_close(held[--count]); /* frees their memory */
    }
    return status < 0;
}
