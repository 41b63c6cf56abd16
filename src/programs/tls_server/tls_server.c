/* Uses libssl. Errors are the first entry of its error queue, which is empty before each call. */
#include "programs/tls_server/tls_server.h"

#include "base/mem.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>

#define BEGAN_SECONDS 3600 /* ago: clocks differ */
#define DAY_SECONDS 86400
#define HOST_BYTES_MAX 253u
#define COMMON_NAME_BYTES_MAX 64u
#define SERIAL_BITS 127

struct stk_tls_server {
    SSL_CTX *context; /* owned */
};

struct stk_tls_connection {
    SSL *ssl; /* owned */
    short receive_waits, send_waits;
    bool broken; /* libssl must not be called again */
    const char *reason;
};

/* Returns the static text of the first error, which is the deepest. */
static const char *last_reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *text = ERR_SYSTEM_ERROR(code) ? strerrordesc_np(ERR_GET_REASON(code))
                                              : ERR_reason_error_string(code);
    return text ? text : "";
}

/* ---- server ---- */

/* Never prompts at the terminal. */
static int no_passphrase(char *out, int out_bytes, int writes, void *owner)
{
    (void)out, (void)out_bytes, (void)writes, (void)owner;
    return -1;
}

static int open_context(struct stk_tls_server **tls_out, struct stoker_error *error)
{
    struct stk_tls_server *server = stk_alloc(1, sizeof *server);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());

    if (!server || !context) {
        stk_free(server);
        SSL_CTX_free(context);
        return stk_fail_errno(error, ENOMEM, "cannot start TLS", "free memory", "libssl");
    }
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* Many clients just close; and once open, only a client that sends is waited for to send. */
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    server->context = context;
    *tls_out = server;
    return 0;
}

int stk_tls_server_open_files(struct stk_tls_server **tls_out, const char *certificate_path,
                              const char *key_path, struct stoker_error *error)
{
    struct stk_tls_server *server = NULL;
    int status = open_context(&server, error);

    if (status < 0) {
        return status;
    }
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(server->context, certificate_path) != 1) {
        status = stk_fail(error, -EINVAL, "cannot use the certificate",
                          "use a PEM file with the server's own certificate first", "'%s' (%s)",
                          certificate_path, last_reason());
    } else if (SSL_CTX_use_PrivateKey_file(server->context, key_path, SSL_FILETYPE_PEM) != 1) {
        status = stk_fail(error, -EINVAL, "cannot use the key of the certificate",
                          "use a PEM file with the key of the certificate, without a passphrase",
                          "'%s' (%s)", key_path, last_reason());
    }
    if (status < 0) {
        stk_tls_server_close(server);
        return status;
    }
    *tls_out = server;
    return 0;
}

void stk_tls_server_close(struct stk_tls_server *server)
{
    if (server) {
        SSL_CTX_free(server->context);
        stk_free(server);
    }
}

/* ---- self-signed certificate ---- */

static bool is_host(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.*";
    size_t bytes = strlen(name);

    return bytes > 0 && bytes <= HOST_BYTES_MAX && strspn(name, plain) == bytes;
}

/* An address, or a host; no memory, or neither: NULL. */
static GENERAL_NAME *name_of(const char *text)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(text);
    ASN1_IA5STRING *host = !address && is_host(text) ? ASN1_IA5STRING_new() : NULL;

    if (name && address) {
        GENERAL_NAME_set0_value(name, GEN_IPADD, address);
    } else if (name && host && ASN1_STRING_set(host, text, (int)strlen(text)) == 1) {
        GENERAL_NAME_set0_value(name, GEN_DNS, host);
    } else {
        ASN1_OCTET_STRING_free(address);
        ASN1_IA5STRING_free(host);
        GENERAL_NAME_free(name);
        name = NULL;
    }
    return name;
}

static bool add_names(X509 *certificate, const struct stk_tls_server_names *names)
{
    GENERAL_NAMES *all = GENERAL_NAMES_new();
    bool good = all != NULL;

    for (size_t i = 0; good && i < names->count; i++) {
        GENERAL_NAME *name = name_of(names->of[i]);
        good = name && sk_GENERAL_NAME_push(all, name) > 0;
        if (!good) {
            GENERAL_NAME_free(name);
        }
    }
    good = good && X509_add1_ext_i2d(certificate, NID_subject_alt_name, all, 0, 0) == 1;
    GENERAL_NAMES_free(all);
    return good;
}

static bool add_extension(X509 *certificate, int kind, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    bool good;

    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_nconf_nid(NULL, &context, kind, value);
    good = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool set_serial(X509 *certificate)
{
    BIGNUM *number = BN_new();
    bool good = number && BN_rand(number, SERIAL_BITS, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
                BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));

    BN_free(number);
    return good;
}

/* The certificate is no authority: clients that trust it trust only this server. */
static X509 *make_certificate(EVP_PKEY *key, const struct stk_tls_server_names *names)
{
    X509 *certificate = X509_new();
    const char *first = names->of[0];
    const char *common = strlen(first) <= COMMON_NAME_BYTES_MAX ? first : "stoker fault";
    X509_NAME *subject = certificate ? X509_get_subject_name(certificate) : NULL;

    if (subject && X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
        X509_gmtime_adj(X509_getm_notBefore(certificate), -BEGAN_SECONDS) &&
        X509_gmtime_adj(X509_getm_notAfter(certificate), DAY_SECONDS - BEGAN_SECONDS) &&
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)common, -1,
                                   -1, 0) == 1 &&
        X509_set_issuer_name(certificate, subject) == 1 && X509_set_pubkey(certificate, key) == 1 &&
        add_extension(certificate, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(certificate, NID_ext_key_usage, "serverAuth") &&
        add_extension(certificate, NID_subject_key_identifier, "hash") &&
        add_names(certificate, names) && X509_sign(certificate, key, EVP_sha256()) > 0) {
        return certificate;
    }
    X509_free(certificate);
    return NULL;
}

static int write_certificate(X509 *certificate, const char *path, struct stoker_error *error)
{
    BIO *file;
    bool good;

    ERR_clear_error();
    file = BIO_new_file(path, "w");
    good = file && PEM_write_bio_X509(file, certificate) == 1 && BIO_flush(file) == 1;
    BIO_free(file);
    return good ? 0
                : stk_fail(error, -EIO, "cannot write the certificate", "check the path",
                           "'%s' (%s)", path, last_reason());
}

static int use_self_signed(struct stk_tls_server *server, const struct stk_tls_server_names *names,
                           const char *pem_path, struct stoker_error *error)
{
    EVP_PKEY *key;
    X509 *certificate;
    int status = 0;

    ERR_clear_error();
    key = EVP_EC_gen("P-256");
    certificate = key ? make_certificate(key, names) : NULL;
    if (!certificate || SSL_CTX_use_certificate(server->context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey(server->context, key) != 1) {
        status = stk_fail(error, -EINVAL, "cannot make a certificate",
                          "is libcrypto set up without P-256 or SHA-256?", "for '%s' (%s)",
                          names->of[0], last_reason());
    } else if (pem_path) {
        status = write_certificate(certificate, pem_path, error);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
    return status;
}

int stk_tls_server_open_self_signed(struct stk_tls_server **tls_out,
                                    const struct stk_tls_server_names *names, const char *pem_path,
                                    struct stoker_error *error)
{
    struct stk_tls_server *server = NULL;
    int status;

    for (size_t i = 0; i < names->count; i++) {
        GENERAL_NAME *name = name_of(names->of[i]);
        GENERAL_NAME_free(name);
        if (!name) {
            return stk_fail(error, -EINVAL, "a certificate cannot have this name",
                            "use a host, as other.test or *.other.test, or an address", "'%s'",
                            names->of[i]);
        }
    }
    status = open_context(&server, error);
    status = status < 0 ? status : use_self_signed(server, names, pem_path, error);
    if (status < 0) {
        stk_tls_server_close(server);
        return status;
    }
    *tls_out = server;
    return 0;
}

/* ---- connections ---- */

struct stk_tls_connection *stk_tls_server_accept(struct stk_tls_server *server, int descriptor)
{
    struct stk_tls_connection *connection = stk_alloc(1, sizeof *connection);
    SSL *ssl = connection ? SSL_new(server->context) : NULL;

    if (!ssl || SSL_set_fd(ssl, descriptor) != 1) {
        SSL_free(ssl);
        stk_free(connection);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    *connection = (struct stk_tls_connection){.ssl = ssl, .receive_waits = POLLIN, .reason = ""};
    return connection;
}

void stk_tls_connection_free(struct stk_tls_connection *connection)
{
    if (connection) {
        SSL_free(connection->ssl);
        stk_free(connection);
    }
}

/* Converts a result of libssl to that of recv or send; sets *waits_out to the event to wait for. */
static ssize_t outcome(struct stk_tls_connection *connection, int returned, size_t moved,
                       short *waits_out)
{
    int system = errno;

    switch (SSL_get_error(connection->ssl, returned)) {
    case SSL_ERROR_NONE:
        *waits_out = 0;
        return (ssize_t)moved;
    case SSL_ERROR_WANT_READ:
        *waits_out = POLLIN;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_WRITE:
        *waits_out = POLLOUT;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        *waits_out = 0;
        return 0;
    case SSL_ERROR_SYSCALL:
        connection->reason = system ? strerrordesc_np(system) : "the client left";
        break;
    default:
        connection->reason = last_reason();
    }
    connection->broken = true;
    *waits_out = 0;
    errno = system && system != EAGAIN && system != EINTR ? system : ECONNRESET;
    return -1;
}

ssize_t stk_tls_connection_receive(struct stk_tls_connection *connection, void *data, size_t bytes)
{
    size_t moved = 0;
    int returned;

    errno = ECONNRESET;
    if (connection->broken) {
        return -1;
    }
    ERR_clear_error();
    errno = 0;
    returned = SSL_read_ex(connection->ssl, data, bytes, &moved);
    return outcome(connection, returned, moved, &connection->receive_waits);
}

ssize_t stk_tls_connection_send(struct stk_tls_connection *connection, const void *data,
                                size_t bytes)
{
    size_t moved = 0;
    int returned;

    errno = ECONNRESET;
    if (connection->broken) {
        return -1;
    }
    ERR_clear_error();
    errno = 0;
    returned = SSL_write_ex(connection->ssl, data, bytes, &moved);
    return outcome(connection, returned, moved, &connection->send_waits);
}

short stk_tls_connection_events(const struct stk_tls_connection *connection, bool receives,
                                bool sends)
{
    return (short)((receives ? connection->receive_waits : 0) |
                   (sends ? connection->send_waits : 0));
}

bool stk_tls_connection_is_open(const struct stk_tls_connection *connection)
{
    return SSL_is_init_finished(connection->ssl);
}

const char *stk_tls_connection_error(const struct stk_tls_connection *connection)
{
    return connection->reason ? connection->reason : "";
}

void stk_tls_connection_shutdown(struct stk_tls_connection *connection)
{
    if (!connection->broken && stk_tls_connection_is_open(connection)) {
        ERR_clear_error();
        SSL_shutdown(connection->ssl);
    }
}
