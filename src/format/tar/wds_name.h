/* format/tar/wds_name.h: key and extension of a tar member's name, exactly as webdataset derives
 * them (docs/formats.md; source: webdataset tariterators.py, base_plus_ext and tar_file_iterator).
 * Pure. Owner: values. Threads: any.
 * Memory: none.
 * Bound: none. */
#ifndef FORMAT_TAR_WDS_NAME_H
#define FORMAT_TAR_WDS_NAME_H

#include "base/base.h"

/* Returns false if webdataset skips the member (no dot in the base name, __meta__ names). Key and
 * extension are views of `name`; the extension keeps its case (the index lower-cases it). */
bool stk_wds_name_split(struct stk_view name, struct stk_view *key_out,
                        struct stk_view *extension_out);
/* Returns NULL if the name can be a key, else a text that says why not: "..", absolute, NUL. Names
 * that are not UTF-8 are allowed. */
const char *stk_wds_name_error(struct stk_view name);
/* Writes the name for an error: control bytes become '?', and a long name is cut between two
 * characters of UTF-8. Ends with NUL; capacity is at least 1. */
void stk_wds_name_text(struct stk_view name, char *text, size_t capacity);

#endif
