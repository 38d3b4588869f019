/**
 * Explains failures of an S3 server without secrets or its address, because regular users see the messages.
 */
import { SvcError } from "../../errors.ts";
import { maskSecretTexts } from "../../lib/secret-mask.ts";
import type { S3Failure, S3Connection } from "./s3-calls.ts";

interface SdkError extends Error {
  code?: unknown;
  $metadata?: { httpStatusCode?: number };
}

const maxDetailChars = 300;
/** Node's TLS codes for untrusted certificates. */
const untrusted = /^(?:SELF_SIGNED_CERT|DEPTH_ZERO_SELF_SIGNED|UNABLE_TO_|CERT_)/;

export function failureOf(error: unknown, connection: S3Connection): S3Failure {
  const { reason, message } = explain(error, connection);
  return { reason, message: withoutSecrets(message, connection) };
}

function explain(error: unknown, connection: S3Connection): S3Failure {
  const { bucket } = connection;
  if (error instanceof SvcError) return error;
  if (!(error instanceof Error)) return unavailable(`the S3 server failed: ${String(error)}`);
  const { name, message, code, $metadata } = error as SdkError;
  const status = $metadata?.httpStatusCode;
  const text = `${name}${message === "" || message === name ? "" : `: ${message}`}`;
  // Before cutting: a truncated secret would not be recognized.
  const detail = withoutSecrets(text, connection).slice(0, maxDetailChars);
  // Servers use different spellings.
  if (/^(?:SignatureDoesNotMatch|InvalidAccessKeyId)$/i.test(name))
    return denied(`the S3 server does not accept the credentials (${detail})`);
  switch (name) {
    case "NoSuchBucket":
      return denied(`the bucket "${bucket}" does not exist on the S3 server`);
    case "RequestTimeTooSkewed":
      return denied(
        `the clocks of this host and of the S3 server differ too much (${detail}); check this host's clock`,
      );
    case "AbortError":
      return { reason: "canceled", message: "the transfer was canceled" };
    case "TimeoutError":
      // The client uses this name for broken connections, too, which have a code.
      if (code !== undefined) break;
      return {
        reason: "deadline_exceeded",
        message: `the S3 server did not respond in time`,
      };
    case "ResponseTooLarge":
      return unavailable("the S3 server sent a response that is too large");
    default:
  }
  if (status === 401 || status === 403)
    return denied(`the S3 server denies access to the bucket "${bucket}" (${detail})`);
  if (name === "NoSuchKey" || name === "NotFound")
    return { reason: "not_found", message: `the object is not in the bucket "${bucket}"` };
  if (status === 301 || status === 307)
    return denied(`the bucket "${bucket}" is in another region or at another endpoint (${detail})`);
  if (status === 429 || status === 503)
    return unavailable(`the S3 server is overloaded (${detail}); try later`);
  if (status !== undefined) return unavailable(`the S3 server responded with status ${status} (${detail})`);
  if (typeof code === "string" && untrusted.test(code))
    return denied(
      `the S3 server has a certificate that this host does not trust (${code}); set its CA certificate as ca (--ca FILE)`,
    );
  return unavailable(`the S3 server cannot be reached (${typeof code === "string" ? code : detail})`);
}

function denied(message: string): S3Failure {
  return { reason: "denied", message };
}

function unavailable(message: string): S3Failure {
  return { reason: "unavailable", message };
}

/** Servers quote requests, and only root may see a storage's location. */
function withoutSecrets(message: string, { accessKey, secretKey, endpoint }: S3Connection): string {
  const url = URL.parse(endpoint);
  return maskSecretTexts(message, [secretKey, accessKey, endpoint, url?.host ?? "", url?.hostname ?? ""]);
}
