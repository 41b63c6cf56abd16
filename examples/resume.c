/* Stops in the middle of an epoch and resumes in a new loader: no sample twice, none left out.
 *
 *   cc -Iinclude examples/resume.c -Lbuild -lstoker -Wl,-rpath,$PWD/build -o resume
 *   ./resume train/   */
#include <stdio.h>
#include <stoker/stoker.h>

static struct stoker_error error;

static void die(void)
{
    fprintf(stderr, "%s: %s\n  %s\n", error.what, error.where, error.advice);
    _Exit(1);
}

/* Prints the sample ids of at most `steps` batches, which stop at the end of the epoch. */
static void print_ids(struct stoker_loader *loader, int steps)
{
    struct stoker_batch *batch = NULL;
    int status = 0;

    while (steps-- > 0 && (status = stoker_loader_next(loader, 60000, &batch, &error)) == 1) {
        for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
            printf("%llu ", (unsigned long long)stoker_batch_ids(batch)[i]);
        }
        stoker_batch_close(batch);
    }
    printf("\n");
    if (status < 0) {
        die();
    }
}

int main(int argc, char **argv)
{
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_loader *first = NULL, *second = NULL;
    struct stoker_state state;
    struct stoker_field_options field = {.name = "id", .kind = STOKER_FIELD_SAMPLE};
    struct stoker_dataset_options data = {.struct_size = sizeof data,
                                          .urls = (const char *const *)argv + 1,
                                          .url_count = (size_t)argc - 1};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = &field,
                                            .field_count = 1,
                                            .batch_size = 4,
                                            .seed = 42,
                                            .tail = STOKER_TAIL_KEEP};

    if (stoker_engine_open(&engine, NULL, &error) < 0 ||
        stoker_dataset_open(&dataset, engine, &data, &error) < 0 ||
        stoker_loader_open(&first, dataset, &options, &error) < 0 ||
        stoker_loader_open(&second, dataset, &options, &error) < 0) {
        die();
    }
    print_ids(first, 2);
    stoker_loader_state(first, &state); /* a plain struct: store it with the weights */
    stoker_loader_set_state(second, &state, &error) < 0 ? die() : print_ids(second, 1000000);
    stoker_loader_close(first);
    stoker_loader_close(second);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}
