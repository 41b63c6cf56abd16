#include "base/text/text_match.h"

#include <strings.h>

bool stk_view_is(struct stk_view view, const char *text)
{
    size_t bytes = strlen(text);

    return view.bytes == bytes && (bytes == 0 || memcmp(view.data, text, bytes) == 0);
}

bool stk_view_ends_with(struct stk_view view, const char *suffix)
{
    size_t bytes = strlen(suffix);

    return view.bytes >= bytes &&
           (bytes == 0 || memcmp(view.data + view.bytes - bytes, suffix, bytes) == 0);
}

bool stk_text_ends_with(const char *text, const char *suffix)
{
    return stk_view_ends_with(stk_view_of_text(text), suffix);
}

bool stk_view_ends_with_nocase(struct stk_view view, const char *suffix)
{
    size_t bytes = strlen(suffix);

    return view.bytes >= bytes &&
           (bytes == 0 ||
            strncasecmp((const char *)view.data + view.bytes - bytes, suffix, bytes) == 0);
}

bool stk_text_ends_with_nocase(const char *text, const char *suffix)
{
    return stk_view_ends_with_nocase(stk_view_of_text(text), suffix);
}

size_t stk_text_stem_bytes(const char *text, const char *suffix)
{
    return stk_text_ends_with(text, suffix) ? strlen(text) - strlen(suffix) : 0;
}

size_t stk_view_mark_bytes(struct stk_view text)
{
    return text.bytes >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

const char *stk_text_skip_file_scheme(const char *text)
{
    if (strncasecmp(text, "file://", 7) != 0) {
        return text;
    }
    text += 7;
    return strncasecmp(text, "localhost/", 10) == 0 ? text + 9 : text;
}
