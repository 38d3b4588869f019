/**
 * Uploads files over REST: browsers cannot stream Connect requests, and report upload progress only for
 * XMLHttpRequest.
 */
import { sentence } from "./plain-text.ts";
import { UserFacingError } from "./user-facing-error.ts";
import { texts } from "./texts.ts";

export interface UploadOptions {
  /** The directory, or the file when `name` is empty. */
  readonly path: string;
  readonly name?: string;
  readonly overwrite?: boolean;
  /** The entity tag that the file must still have. */
  readonly ifMatch?: string;
  readonly signal?: AbortSignal;
  /** @param share 0 to 100 */
  readonly onProgress?: (share: number) => void;
}

/** Why an upload was rejected, as a message for users. */
export class UploadError extends UserFacingError {
  readonly reason: string;

  constructor(reason: string, message: string) {
    super([sentence(message), texts.advice[reason] ?? ""].join(" ").trim());
    this.reason = reason;
  }
}

export type Upload = (content: Blob | string, options: UploadOptions) => Promise<void>;

/**
 * @param credential returns the value of the `authorization` header
 * @param onUnanswered called if the response is missing, or not the daemon's
 */
export function createUpload(credential: () => string, onUnanswered: () => void): Upload {
  return (content, { path, name = "", overwrite = false, ifMatch, signal, onProgress }) =>
    new Promise((resolve, reject) => {
      const query = new URLSearchParams({ path, name, overwrite: String(overwrite) });
      const request = new XMLHttpRequest();
      request.open("PUT", `/v1/files/content?${query.toString()}`);
      request.setRequestHeader("authorization", credential());
      request.setRequestHeader("content-type", "application/octet-stream");
      if (ifMatch !== undefined) request.setRequestHeader("if-match", ifMatch);
      request.upload.addEventListener("progress", ({ loaded, total }) =>
        onProgress?.((loaded / total) * 100),
      );
      request.addEventListener("load", () => {
        if (request.status < 300) {
          resolve();
          return;
        }
        const refusal = rejectionOf(request.responseText);
        if (refusal.reason === "") onUnanswered();
        reject(refusal);
      });
      request.addEventListener("error", () => {
        onUnanswered();
        reject(new UploadError("", texts.unanswered));
      });
      request.addEventListener("abort", () => reject(new DOMException("canceled", "AbortError")));
      signal?.addEventListener("abort", () => request.abort());
      request.send(content);
    });
}

/** @param body a REST error as JSON */
function rejectionOf(body: string): UploadError {
  try {
    const { error, reason } = JSON.parse(body) as { error?: unknown; reason?: unknown };
    if (typeof error === "string" && typeof reason === "string") return new UploadError(reason, error);
  } catch {
    // Not an error of the daemon.
  }
  return new UploadError("", texts.unanswered);
}
