/* Goal: a generated certificate is for the requested names and can be trusted by its file; bytes
 * are exact in both directions, on sockets that are full and empty by turns; a client that does not
 * trust it, speaks no TLS or disconnects is detected; wrong files are refused, and no password
 * prompt appears.
 * Method: libssl as the client, over a socket pair whose ends this one thread moves by turns. */
#include "programs/tls_server/tls_server.h"

#include "test/t.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURNS_MAX 100000u /* far more than any part needs */
#define MUCH 1000000u     /* far more than a socket buffers */

static char folder[] = "/tmp/stoker-tls-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][64];
    static unsigned next;
    char *path = paths[next++ % STK_COUNT(paths)];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* ---- certificates ---- */

static X509 *read_certificate(const char *path)
{
    FILE *file = fopen(path, "re");
    X509 *certificate = file ? PEM_read_X509(file, NULL, NULL, NULL) : NULL;

    if (file) {
        fclose(file);
    }
    return certificate;
}

static const struct name_row {
    const char *name;
    struct stk_tls_server_names names;
    const char *host, *other; /* a name that it is for, and one that it is not */
    const char *address, *other_address;
} name_rows[] = {
    {"usual", {{"localhost", "127.0.0.1"}, 2}, "localhost", "other.test", "127.0.0.1", "::1"},
    {"other", {{"other.test"}, 1}, "other.test", "localhost", NULL, "127.0.0.1"},
    {"all below", {{"::1", "*.a.test"}, 2}, "b.a.test", "a.test", "::1", "127.0.0.1"},
};

static void test_names(void)
{
    T_EACH(name_row, row, name_rows)
    {
        struct stk_tls_server *tls = NULL;
        struct stoker_error error = {0};
        const char *path = in_folder("names.pem");
        int days = 0, seconds = 0;
        X509 *certificate;

        T_EQ(row->name, stk_tls_server_open_self_signed(&tls, &row->names, path, &error), 0);
        certificate = read_certificate(path);
        if (T_TRUE(row->name, certificate != NULL)) {
            T_EQ(row->name, X509_check_host(certificate, row->host, 0, 0, NULL), 1);
            T_EQ(row->name, X509_check_host(certificate, row->other, 0, 0, NULL), 0);
            T_TRUE(row->name,
                   !row->address || X509_check_ip_asc(certificate, row->address, 0) == 1);
            T_EQ(row->name, X509_check_ip_asc(certificate, row->other_address, 0), 0);
            T_TRUE(row->name, X509_cmp_current_time(X509_get0_notBefore(certificate)) < 0);
            T_TRUE(row->name, X509_cmp_current_time(X509_get0_notAfter(certificate)) > 0);
            T_EQ(row->name,
                 ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(certificate),
                                X509_get0_notAfter(certificate)),
                 1);
            T_TRUE(row->name, days == 1 && seconds == 0);
        }
        X509_free(certificate);
        stk_tls_server_close(tls);
    }
}

static void test_wrong_names(void)
{
    static char much[300];
    const char *const wrong[] = {"", "a b", "a,DNS:b", "a/b", "caf\xc3\xa9", "1:2", much};

    memset(much, 'a', sizeof much - 1);
    for (size_t i = 0; i < STK_COUNT(wrong); i++) {
        struct stk_tls_server_names names = {{"good.test", wrong[i]}, 2};
        struct stoker_error error = {0};
        struct stk_tls_server *tls = NULL;
        T_TRUE(wrong[i], stk_tls_server_open_self_signed(&tls, &names, NULL, &error) < 0 && !tls);
        T_ERROR(wrong[i], &error);
    }
}

static void write_key(const char *path, EVP_PKEY *key, const char *passphrase)
{
    FILE *file = fopen(path, "we");

    T_EQ(path,
         PEM_write_PrivateKey(file, key, passphrase ? EVP_aes_128_cbc() : NULL,
                              (const unsigned char *)passphrase,
                              passphrase ? (int)strlen(passphrase) : 0, NULL, NULL),
         1);
    fclose(file);
}

/* A certificate of this key, signed by itself. */
static void write_certificate(const char *path, EVP_PKEY *key)
{
    FILE *file = fopen(path, "we");
    X509 *made = X509_new();
    X509_NAME *subject = X509_get_subject_name(made);

    X509_gmtime_adj(X509_getm_notBefore(made), -60);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)"x", -1, -1, 0);
    X509_set_issuer_name(made, subject);
    X509_set_pubkey(made, key);
    T_TRUE(path, X509_sign(made, key, EVP_sha256()) > 0);
    T_EQ(path, PEM_write_X509(file, made), 1);
    X509_free(made);
    fclose(file);
}

static const struct file_row {
    const char *name, *certificate, *key;
    const char *part; /* of the error; NULL: good */
} file_rows[] = {
    {"good", "good.pem", "good.key", NULL},
    {"no certificate", "none.pem", "good.key", "none.pem' (No such file"},
    {"no key", "good.pem", "none.key", "none.key' (No such file"},
    {"key for certificate", "good.key", "good.key", "good.key' (no start line)"},
    {"certificate for key", "good.pem", "good.pem", "good.pem' ("},
    {"other key", "good.pem", "other.key", "other.key' (key values mismatch)"},
    {"locked key", "good.pem", "locked.key", "locked.key' ("},
    {"garbage", "garbage", "good.key", "garbage' ("},
};

static void test_files(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256"), *other = EVP_EC_gen("P-256");
    struct stk_tls_server_names names = {{"localhost"}, 1};
    struct stoker_error error = {0};
    struct stk_tls_server *tls = NULL;
    FILE *garbage = fopen(in_folder("garbage"), "we");

    fputs("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", garbage);
    fclose(garbage);
    write_certificate(in_folder("good.pem"), key);
    write_key(in_folder("good.key"), key, NULL);
    write_key(in_folder("other.key"), other, NULL);
    write_key(in_folder("locked.key"), key, "word");
    T_EACH(file_row, row, file_rows)
    {
        struct stoker_error reported = {0};
        int status = stk_tls_server_open_files(&tls, in_folder(row->certificate),
                                               in_folder(row->key), &reported);
        T_EQ(row->name, status == 0, row->part == NULL);
        if (row->part) {
            T_ERROR(row->name, &reported);
            T_HAS(row->name, reported.where, row->part);
        }
        stk_tls_server_close(tls);
        tls = NULL;
    }
    T_TRUE("no folder",
           stk_tls_server_open_self_signed(&tls, &names, in_folder("none/x.pem"), &error) < 0);
    T_ERROR("no folder", &error);
    T_HAS("no folder", error.where, "No such file");
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
}

/* ---- both ends ---- */

struct pair {
    struct stk_tls_server *tls;
    struct stk_tls_connection *server;
    SSL_CTX *context;
    SSL *client;
    int ends[2]; /* the server's, the client's */
};

/* trusts: the client has the certificate, and accepts it for this host. */
static void open_pair(struct pair *pair, bool trusts, const char *host)
{
    struct stk_tls_server_names names = {{"localhost"}, 1};
    const char *path = in_folder("pair.pem");

    *pair = (struct pair){0};
    T_EQ("pair", stk_tls_server_open_self_signed(&pair->tls, &names, path, NULL), 0);
    T_EQ("pair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair->ends), 0);
    pair->server = stk_tls_server_accept(pair->tls, pair->ends[0]);
    pair->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(pair->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(pair->context, SSL_MODE_ENABLE_PARTIAL_WRITE);
    if (trusts) {
        T_EQ("pair", SSL_CTX_load_verify_locations(pair->context, path, NULL), 1);
    }
    pair->client = SSL_new(pair->context);
    SSL_set1_host(pair->client, host);
    SSL_set_fd(pair->client, pair->ends[1]);
    SSL_set_connect_state(pair->client);
}

static void close_pair(struct pair *pair)
{
    SSL_free(pair->client);
    SSL_CTX_free(pair->context);
    stk_tls_connection_free(pair->server);
    stk_tls_server_close(pair->tls);
    close(pair->ends[0]);
    close(pair->ends[1]);
}

/* Both by turns, until one is done with it: whether that is for the good of the client. */
static bool shake(struct pair *pair, ssize_t *last_out)
{
    char byte;
    int done = 0;

    for (unsigned i = 0; i < TURNS_MAX; i++) {
        done = SSL_do_handshake(pair->client);
        *last_out = stk_tls_connection_receive(pair->server, &byte, 1);
        if ((done == 1 && stk_tls_connection_is_open(pair->server)) || *last_out != -1 ||
            errno != EAGAIN) {
            break;
        }
    }
    return done == 1;
}

static void test_echo(void)
{
    static uint8_t sent[MUCH], got[MUCH], echoed[MUCH], moving[2][70000];
    size_t sent_bytes = 0, got_bytes = 0, back = 0, echoed_bytes = 0, some;
    struct pair pair;
    bool was_full = false;
    ssize_t last;

    for (size_t i = 0; i < MUCH; i++) {
        sent[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    open_pair(&pair, true, "localhost");
    T_EQ("nothing yet", stk_tls_connection_receive(pair.server, got, 1), -1);
    T_EQ("nothing yet", errno, EAGAIN);
    T_EQ("nothing yet", stk_tls_connection_events(pair.server, true, true), POLLIN);
    T_EQ("nothing yet", stk_tls_connection_is_open(pair.server), false);
    T_TRUE("handshake", shake(&pair, &last));
    T_EQ("handshake", stk_tls_connection_is_open(pair.server), true);
    for (unsigned i = 0; i < TURNS_MAX && echoed_bytes < MUCH; i++) {
        if (sent_bytes < MUCH &&
            SSL_write_ex(pair.client, sent + sent_bytes, MUCH - sent_bytes, &some)) {
            sent_bytes += some;
        }
        last = stk_tls_connection_receive(pair.server, got + got_bytes, MUCH - got_bytes);
        got_bytes += last > 0 ? (size_t)last : 0;
        /* All that there is at once, each time from elsewhere; the client takes it later. */
        some = stk_min(got_bytes - back, sizeof moving[0]);
        if (some > 0) {
            memcpy(moving[i % 2], got + back, some);
            last = stk_tls_connection_send(pair.server, moving[i % 2], some);
            memset(moving[i % 2], 0, some);
            T_TRUE("sent", last > 0 || (last == -1 && errno == EAGAIN));
            back += last > 0 ? (size_t)last : 0;
            if (last < 0) {
                T_EQ("full", stk_tls_connection_events(pair.server, false, true), POLLOUT);
            }
            was_full = was_full || last < 0;
        }
        if ((was_full || got_bytes == MUCH) &&
            SSL_read_ex(pair.client, echoed + echoed_bytes, MUCH - echoed_bytes, &some)) {
            echoed_bytes += some;
        }
    }
    T_TRUE("a full socket", was_full);
    T_TRUE("there", got_bytes == MUCH && memcmp(sent, got, MUCH) == 0);
    T_TRUE("and back", echoed_bytes == MUCH && memcmp(sent, echoed, MUCH) == 0);
    close_pair(&pair);
}

/* The client's view of a proper end, and of a truncation. */
static void test_ends(void)
{
    for (int reported = 0; reported < 2; reported++) {
        const char *name = reported ? "reported" : "cut";
        struct pair pair;
        ssize_t last;
        char byte;

        open_pair(&pair, true, "localhost");
        T_TRUE(name, shake(&pair, &last));
        if (reported) {
            stk_tls_connection_shutdown(pair.server);
        }
        shutdown(pair.ends[0], SHUT_WR);
        int got = SSL_read(pair.client, &byte, 1);
        T_EQ(name, SSL_get_error(pair.client, got),
             reported ? SSL_ERROR_ZERO_RETURN : SSL_ERROR_SSL);
        close_pair(&pair);

        /* The other way: a client that leaves without close_notify has ended, as one that sends
         * it. */
        open_pair(&pair, true, "localhost");
        T_TRUE(name, shake(&pair, &last));
        if (reported) {
            SSL_shutdown(pair.client);
        }
        shutdown(pair.ends[1], SHUT_WR);
        T_EQ(name, stk_tls_connection_receive(pair.server, &byte, 1), 0);
        close_pair(&pair);
    }
}

static void expect_refused(const char *name, struct pair *pair, ssize_t last, const char *reason)
{
    char byte = 0;

    T_TRUE(name, last <= 0 && (last == 0 || errno != EAGAIN));
    T_EQ(name, stk_tls_connection_is_open(pair->server), false);
    T_HAS(name, stk_tls_connection_error(pair->server), reason);
    T_EQ(name, stk_tls_connection_events(pair->server, true, true), 0);
    T_EQ(name, stk_tls_connection_send(pair->server, &byte, 1), -1);
    stk_tls_connection_shutdown(pair->server);
}

static void test_refused(void)
{
    static const char plain[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    struct pair pair;
    ssize_t last;
    char byte;

    open_pair(&pair, true, "other.test");
    T_EQ("wrong host", shake(&pair, &last), false);
    T_EQ("wrong host", SSL_get_verify_result(pair.client), X509_V_ERR_HOSTNAME_MISMATCH);
    expect_refused("wrong host", &pair, last, "alert");
    close_pair(&pair);

    open_pair(&pair, false, "localhost");
    T_EQ("no trust", shake(&pair, &last), false);
    expect_refused("no trust", &pair, last, "unknown ca");
    close_pair(&pair);

    open_pair(&pair, true, "localhost");
    T_EQ("plain", write(pair.ends[1], plain, sizeof plain - 1), (ssize_t)sizeof plain - 1);
    last = stk_tls_connection_receive(pair.server, &byte, 1);
    expect_refused("plain", &pair, last, "http request");
    close_pair(&pair);

    open_pair(&pair, true, "localhost");
    shutdown(pair.ends[1], SHUT_WR);
    T_TRUE("gone at once", stk_tls_connection_receive(pair.server, &byte, 1) <= 0);
    T_TRUE("gone at once", errno != EAGAIN && !stk_tls_connection_is_open(pair.server));
    close_pair(&pair);
}

int main(void)
{
    char command[64];

    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder)) {
        t_skip("no folder for files");
    }
    test_names();
    test_wrong_names();
    test_files();
    test_echo();
    test_ends();
    test_refused();
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("clean", system(command), 0);
    return t_finish();
}
