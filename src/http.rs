//! What all users of HTTP share. Nothing of it is made before it is needed: most runs never are.

/// Sets the cryptography that TLS uses; once is enough.
pub fn install_tls() {
    // Somebody else has done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
