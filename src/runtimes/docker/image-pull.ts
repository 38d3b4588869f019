import { EngineRejection, plainMessage } from "../../engine/engine-errors.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { parseImageReference } from "../../engine/image-reference.ts";
import type { RegistryCredentials } from "../../engine/registry-auth.ts";
import { SvcError, notFound } from "../../errors.ts";
import type { RuntimeWork } from "../capabilities.ts";
import { readMessages, type EngineMessage } from "./engine-messages.ts";

export interface PullOptions extends RuntimeWork {
  /** The name to show, if it is not the one to pull. */
  shownName?: string;
  /** Stops the pull when the engine has downloaded more. Default: no limit. */
  maxDownloadBytes?: number;
  /** Credentials for the registry; absent if none are needed. */
  credentials?: RegistryCredentials | undefined;
}

const pullTimeoutMs = 60 * 60_000;
/** Messages of registries and the engine about an image that is missing or hidden from these credentials. */
const isAbsent =
  /not found|manifest unknown|name unknown|does not exist|denied|unauthorized|authentication required|no basic auth credentials|forbidden/i;
/** Those that a login may help with. */
const needsLogin = /denied|unauthorized|authentication required|no basic auth credentials|forbidden/i;
const progressIntervalMs = 200;

/**
 * Pulls an image for the engine's platform.
 * @throws SvcError `not_found` if the registry has no such image or requires other credentials, `disk_full`; `denied`
 *   above `maxDownloadBytes`; `source_failed` with the engine's message for anything else
 */
export async function pullImage(
  engine: DockerEngine,
  reference: string,
  options: PullOptions,
): Promise<void> {
  const { credentials, signal, onProgress = () => undefined, maxDownloadBytes = Infinity } = options;
  const name = options.shownName ?? reference;
  const layers = new Map<string, { current: number; total: number }>();
  let shownAtMs = -Infinity;
  const show = (message: EngineMessage): void => {
    const { id = "", status = "", progressDetail: { current, total } = {} } = message;
    if (id === "" || !["Downloading", "Download complete"].includes(status)) return;
    const known = layers.get(id);
    const whole = total ?? known?.total ?? 0;
    layers.set(id, { current: current ?? Math.max(whole, known?.current ?? 0), total: whole });
    if (sum(layers, "current") > maxDownloadBytes) {
      const message = `the image ${name} has more than the ${maxDownloadBytes} bytes that its manifest declares; regular users may not pull it`;
      throw new SvcError("denied", message);
    }
    const nowMs = performance.now();
    if (nowMs - shownAtMs < progressIntervalMs) return;
    shownAtMs = nowMs;
    onProgress({
      step: "pull",
      message: `Pulling ${name}`,
      doneBytes: BigInt(sum(layers, "current")),
      totalBytes: BigInt(sum(layers, "total")),
    });
  };
  onProgress({ step: "pull", message: `Pulling ${name}` });
  const serveraddress = parseImageReference(reference).host;
  const pull = engine.operate(
    `pull ${name}`,
    async (docker) => {
      const request = {
        fromImage: reference,
        ...(credentials && { authconfig: { ...credentials, serveraddress } }),
      };
      for await (const message of readMessages(await docker.createImage(request))) {
        if (message.error !== undefined) throw new EngineRejection(500, message.error);
        show(message);
      }
    },
    { timeoutMs: pullTimeoutMs, signal, waitsFor: "pull" },
  );
  await pull.catch((error: unknown) => {
    throw pullFailed(name, error);
  });
}

/** The engine reports a failure by the response status or in the stream; both contain the registry's message. */
function pullFailed(reference: string, error: unknown): unknown {
  const isRefusal = error instanceof SvcError && error.cause instanceof EngineRejection;
  if (!isRefusal || error.reason === "disk_full") return error;
  const words = (error.cause as EngineRejection).message;
  // svc does not use the logins of `docker login`.
  const remedy = needsLogin.test(words)
    ? "; check the name, or add a login with: svc credential add --kind registry"
    : "";
  const message = `${reference} cannot be pulled: ${plainMessage(words)}${remedy}`;
  return isAbsent.test(words)
    ? notFound("image", reference, message)
    : new SvcError("source_failed", message);
}

function sum(
  layers: ReadonlyMap<string, { current: number; total: number }>,
  key: "current" | "total",
): number {
  return [...layers.values()].reduce((bytes, layer) => bytes + layer[key], 0);
}
