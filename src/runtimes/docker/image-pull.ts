import { EngineRejection, plainMessage } from "../../engine/engine-errors.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { parseImageReference } from "../../engine/image-reference.ts";
import type { RegistryCredentials } from "../../engine/registry-auth.ts";
import { SvcError, notFound } from "../../errors.ts";
import type { RuntimeWork } from "../capabilities.ts";
import { readMessages, type EngineMessage } from "./engine-messages.ts";

export interface PullOptions extends RuntimeWork {
  /** Credentials for the registry; absent if none are needed. */
  credentials?: RegistryCredentials | undefined;
}

const pullTimeoutMs = 60 * 60_000;
const confirmTimeoutMs = 60_000;
/** Messages of registries and the engine about an image that is missing or hidden from these credentials. */
const isAbsent =
  /not found|manifest unknown|name unknown|does not exist|denied|unauthorized|authentication required|no basic auth credentials|forbidden/i;
const progressIntervalMs = 200;

/**
 * Limit for images of regular users, because the engine's memory grows with each layer that a manifest lists. With 127
 * layers, the most that overlay2 can mount, and annotations, a manifest has at most 64 KiB.
 */
const maxUserManifestBytes = 128 * 1024;

/**
 * Checks that the registry shows the image to these credentials, whether or not the image exists locally.
 * @returns the digest of the image
 * @throws SvcError `not_found`; `unavailable` if the registry cannot be reached; `denied` if its manifest is too large
 */
export async function confirmImage(
  engine: DockerEngine,
  reference: string,
  { credentials, signal }: PullOptions,
): Promise<string> {
  const serveraddress = parseImageReference(reference).host;
  const options = credentials && { authconfig: { ...credentials, serveraddress } };
  try {
    const found: unknown = await engine.operate(
      `find ${reference} in its registry`,
      (docker) => docker.getImage(reference).distribution(options),
      { timeoutMs: confirmTimeoutMs, signal, waitsFor: "pull" },
    );
    const { digest, size = 0 } = (found as { Descriptor: { digest: string; size?: number } }).Descriptor;
    if (size > maxUserManifestBytes) throw tooLarge(reference, size);
    return digest;
  } catch (error) {
    if (!(error instanceof SvcError) || !(error.cause instanceof EngineRejection)) throw error;
    throw notConfirmed(reference, serveraddress, error.cause.message);
  }
}

function tooLarge(reference: string, bytes: number): SvcError {
  const message = `the manifest of image ${reference} has ${bytes} bytes, more than the ${maxUserManifestBytes} of a regular user's image; use an image with fewer layers`;
  return new SvcError("denied", message);
}

function notConfirmed(reference: string, host: string, words: string): SvcError {
  const isMissing = isAbsent.test(words);
  const message = isMissing
    ? `image ${reference} is not found: the registry has no such image that you may read; check the name, or add a login with: svc credential add --kind registry`
    : `image ${reference} is not available: ${plainMessage(words)}; try again when the registry ${host} can be reached`;
  return isMissing ? notFound("image", reference, message) : new SvcError("source_failed", message);
}

/**
 * Pulls an image for the engine's platform; resolves to its digest, if the engine reports it.
 * @throws SvcError `not_found` if the registry has no such image or requires other credentials, `disk_full`;
 *   `source_failed` with the engine's message for anything else
 */
export async function pullImage(
  engine: DockerEngine,
  reference: string,
  options: PullOptions,
): Promise<string | undefined> {
  const { credentials, signal, onProgress = () => undefined } = options;
  const layers = new Map<string, { current: number; total: number }>();
  let shownAtMs = -Infinity;
  let digest: string | undefined;
  const show = (message: EngineMessage): void => {
    const { id = "", status = "", progressDetail: { current, total } = {} } = message;
    if (id === "" || !["Downloading", "Download complete"].includes(status)) return;
    const known = layers.get(id);
    const whole = total ?? known?.total ?? 0;
    layers.set(id, { current: current ?? whole, total: whole });
    const nowMs = performance.now();
    if (nowMs - shownAtMs < progressIntervalMs) return;
    shownAtMs = nowMs;
    onProgress({
      step: "pull",
      message: `Pulling ${reference}`,
      doneBytes: sum(layers, "current"),
      totalBytes: sum(layers, "total"),
    });
  };
  onProgress({ step: "pull", message: `Pulling ${reference}` });
  const serveraddress = parseImageReference(reference).host;
  const pull = engine.operate(
    `pull ${reference}`,
    async (docker) => {
      const request = {
        fromImage: reference,
        ...(credentials && { authconfig: { ...credentials, serveraddress } }),
      };
      for await (const message of readMessages(await docker.createImage(request))) {
        if (message.error !== undefined) throw new EngineRejection(500, message.error);
        show(message);
        digest = /^Digest: (sha256:[0-9a-f]{64})$/.exec(message.status ?? "")?.[1] ?? digest;
      }
    },
    { timeoutMs: pullTimeoutMs, signal, waitsFor: "pull" },
  );
  await pull.catch((error: unknown) => {
    throw pullFailed(reference, error);
  });
  return digest;
}

/** The engine reports a failure by the response status or in the stream; both contain the registry's message. */
function pullFailed(reference: string, error: unknown): unknown {
  const isRefusal = error instanceof SvcError && error.cause instanceof EngineRejection;
  if (!isRefusal || error.reason === "disk_full") return error;
  const words = (error.cause as EngineRejection).message;
  const message = `${reference} cannot be pulled: ${plainMessage(words)}`;
  return isAbsent.test(words)
    ? notFound("image", reference, message)
    : new SvcError("source_failed", message);
}

function sum(
  layers: ReadonlyMap<string, { current: number; total: number }>,
  key: "current" | "total",
): bigint {
  return BigInt([...layers.values()].reduce((bytes, layer) => bytes + layer[key], 0));
}
