/* Reads the first batch of a folder or of tars, as in training.
 *
 *   cc -Iinclude examples/first_batch.c -Lbuild -lstoker -Wl,-rpath,$PWD/build -o first_batch
 *   ./first_batch train/                      or: ./first_batch 'train-{000..099}.tar'
 */
#include <stdio.h>
#include <stoker/stoker.h>

int main(int argc, char **argv)
{
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_transform transforms[] = {
        {.kind = STOKER_RANDOM_RESIZED_CROP,
         .height = 224,
         .width = 224,
         .filter = STOKER_BILINEAR,
         .scale = {0.08, 1},
         .ratio = {3.0 / 4, 4.0 / 3}},
        {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
        {.kind = STOKER_NORMALIZE, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}},
    };
    struct stoker_field_options fields[] = {
        {.name = "image",
         .kind = STOKER_FIELD_IMAGE,
         .transforms = transforms,
         .transform_count = 3},
        {.name = "label", .kind = STOKER_FIELD_LABEL},
    };
    struct stoker_dataset_options data = {.struct_size = sizeof data,
                                          .urls = (const char *const *)argv + 1,
                                          .url_count = (size_t)argc - 1};
    struct stoker_loader_options options = {
        .struct_size = sizeof options, .fields = fields, .field_count = 2, .batch_size = 8};
    struct stoker_array image = {0}, label = {0};
    int status = stoker_engine_open(&engine, NULL, &error);

    if (status >= 0) {
        status = stoker_dataset_open(&dataset, engine, &data, &error);
    }
    if (status >= 0) {
        status = stoker_loader_open(&loader, dataset, &options, &error);
    }
    if (status >= 0) { /* waits a minute; interactive programs wait 0.1 s in a loop */
        status = stoker_loader_next(loader, 60000, &batch, &error);
    }
    if (status == 1) {
        stoker_batch_array(batch, 0, &image);
        stoker_batch_array(batch, 1, &label);
        const float *pixels = image.data;
        printf("images float32 %lld x %lld x %lld x %lld, the first value is %.3f\n",
               (long long)image.shape[0], (long long)image.shape[1], (long long)image.shape[2],
               (long long)image.shape[3], (double)pixels[0]);
        printf("the first label is %lld\n", (long long)*(const int64_t *)label.data);
    } else if (status < 0) {
        fprintf(stderr, "%s: %s\n  %s\n", error.what, error.where, error.advice);
    }
    stoker_batch_close(batch); /* NULL is allowed, here and below */
    stoker_loader_close(loader);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return status == 1 ? 0 : 1;
}
