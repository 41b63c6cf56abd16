/* format/tar/wds_name.h: names of tar members -> key and extension, exactly as webdataset derives
 * them (docs/formats.md; source: webdataset tariterators.py, base_plus_ext and tar_file_iterator).
 * Pure. Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef FORMAT_TAR_WDS_NAME_H
#define FORMAT_TAR_WDS_NAME_H

#include "base/base.h"

/* False: webdataset skips it (no dot in the base name, __meta__ names). The key and extension
 * are parts of `name`; the extension keeps its case here (it is lower-cased in the index). */
bool stk_wds_name_split(struct stk_view name, struct stk_view *key_out,
                        struct stk_view *extension_out);
/* NULL if the name is fit to be a key, else why it is refused: "..", absolute, NUL; not UTF-8
 * is fine. Lent for ever. */
const char *stk_wds_name_error(struct stk_view name);
/* The name for an error's text: control bytes become '?', and what does not fit is cut between
 * two characters of UTF-8. Ends with NUL; capacity is at least 1. */
void stk_wds_name_text(struct stk_view name, char *text, size_t capacity);

#endif
