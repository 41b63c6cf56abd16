/* Goal: a file of labels becomes one number a sample; a file of another length, and a missing one,
 * are usage errors; samples without labels are no error unless labels were requested.
 * Method: this file replaces the measurement, and checks the arguments that it receives. */
#include "programs/cli/order_labels.h"

#include "programs/cli/terminal.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    int status, calls;
    bool has_labels;
    int64_t labels[4];
} fake;

int stoker_mixing_measure(const struct stoker_mixing_options *options,
                          struct stoker_mixing *mixing_out, struct stoker_error *error)
{
    fake.calls++;
    fake.has_labels = options->labels != NULL;
    if (options->labels) {
        memcpy(fake.labels, options->labels, sizeof fake.labels);
    }
    if (fake.status < 0) {
        *error = (struct stoker_error){.status = fake.status, .what = "a label is missing"};
    } else {
        snprintf(mixing_out->note, sizeof mixing_out->note, "3 classes per batch");
    }
    return fake.status;
}

/* clang-format off: one row, one line. */
static const struct row {
    const char *name, *text; /* NULL: no --labels */
    int faked, want, calls;
    bool is_local, has_note;
} rows[] = {
    {"numbers and names", "7\n-1\ncat\ncat\n", 0, EXIT_FINE, 1, false, true},
    {"no end of line", "7\r\n-1\r\ncat\r\ncat", 0, EXIT_FINE, 1, false, true},
    {"a byte order mark",
     "\xef\xbb\xbf"
     "7\n-1\ncat\ncat\n",
     0, EXIT_FINE, 1, false, true},
    {"blanks at ends", "7 \n-1\t\r\ncat \ncat\r\r\n", 0, EXIT_FINE, 1, false, true},
    {"too few", "7\n-1\ncat\n", 0, EXIT_USAGE, 0, true, false},
    {"too many", "7\n-1\ncat\ncat\ncat\n", 0, EXIT_USAGE, 0, true, false},
    {"its own labels", NULL, 0, EXIT_FINE, 1, true, true},
    {"reading them is slow", NULL, 0, EXIT_FINE, 0, false, false},
    {"none", NULL, STOKER_ERROR_MISSING, EXIT_FINE, 1, true, false},
    {"requested, and failed", "7\n-1\ncat\ncat\n", STOKER_ERROR_LIMIT, EXIT_FINDINGS, 1, true,
     false},
};
/* clang-format on */

int main(void)
{
    char path[] = "/tmp/order_labels_XXXXXX";
    int file = mkstemp(path);

    T_TRUE("a file", file >= 0);
    T_EACH(row, row, rows)
    {
        struct stoker_dataset_info info = {.random_reads_free = row->is_local};
        struct stoker_order_options options = {.sample_count = 4};
        struct args args = {.labels_path = row->text ? path : NULL};
        struct stoker_mixing mixing;
        size_t bytes = row->text ? strlen(row->text) : 0;

        T_EQ(row->name, ftruncate(file, 0), 0);
        T_EQ(row->name, pwrite(file, row->text ? row->text : "", bytes, 0), (long long)bytes);
        memset(&fake, 0, sizeof fake);
        fake.status = row->faked;
        T_EQ(row->name,
             order_labels_measure(&args, (struct stoker_dataset *)&fake, &info, &options, &mixing),
             row->want);
        T_EQ(row->name, fake.calls, row->calls);
        if (row->want == EXIT_FINE) {
            T_EQ(row->name, mixing.note[0] != 0, row->has_note);
        }
        if (row->text && row->want == EXIT_FINE) {
            T_TRUE(row->name, fake.labels[0] == 7 && fake.labels[1] == -1 &&
                                  fake.labels[2] == fake.labels[3] && fake.labels[2] > 7);
            order_labels_print(&mixing);
        }
    }
    close(file);
    unlink(path);
    return t_finish();
}
