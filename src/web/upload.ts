/** Files go up over REST: browsers cannot stream a request of Connect, and tell how far it is here alone. */
import { sentence } from "./plain-text.ts";
import { ToldError } from "./told-error.ts";
import { texts } from "./texts.ts";

export interface UploadOptions {
  /** The directory, or the file when `name` is empty. */
  readonly path: string;
  readonly name?: string;
  readonly overwrite?: boolean;
  /** The entity tag that the file must have still. */
  readonly ifMatch?: string;
  readonly signal?: AbortSignal;
  /** @param share 0 to 100 */
  readonly onProgress?: (share: number) => void;
}

/** Why an upload was refused, in words for people. */
export class UploadError extends ToldError {
  readonly reason: string;

  constructor(reason: string, message: string) {
    super([sentence(message), texts.advice[reason] ?? ""].join(" ").trim());
    this.reason = reason;
  }
}

export type Upload = (content: Blob | string, options: UploadOptions) => Promise<void>;

/** @param token kept in the closure alone */
export function createUpload(token: string): Upload {
  return (content, { path, name = "", overwrite = false, ifMatch, signal, onProgress }) =>
    new Promise((resolve, reject) => {
      const query = new URLSearchParams({ path, name, overwrite: String(overwrite) });
      const request = new XMLHttpRequest();
      request.open("PUT", `/v1/files/content?${query.toString()}`);
      request.setRequestHeader("authorization", `Bearer ${token}`);
      request.setRequestHeader("content-type", "application/octet-stream");
      if (ifMatch !== undefined) request.setRequestHeader("if-match", ifMatch);
      request.upload.addEventListener("progress", ({ loaded, total }) =>
        onProgress?.((loaded / total) * 100),
      );
      request.addEventListener("load", () => {
        if (request.status < 300) resolve();
        else reject(refusalOf(request.responseText));
      });
      request.addEventListener("error", () => reject(new UploadError("", texts.unanswered)));
      request.addEventListener("abort", () => reject(new DOMException("canceled", "AbortError")));
      signal?.addEventListener("abort", () => request.abort());
      request.send(content);
    });
}

/** @param body JSON of an error as REST answers it */
function refusalOf(body: string): UploadError {
  try {
    const { error, reason } = JSON.parse(body) as { error?: unknown; reason?: unknown };
    if (typeof error === "string" && typeof reason === "string") return new UploadError(reason, error);
  } catch {
    // It did not come from the daemon.
  }
  return new UploadError("", texts.unanswered);
}
