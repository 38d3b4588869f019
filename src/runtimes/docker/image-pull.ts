import type { DockerEngine } from "../../docker/engine.ts";
import { parseImageReference } from "../../docker/image-reference.ts";
import type { RegistryCredentials } from "../../docker/registry-auth.ts";
import { SvcError, notFound } from "../../errors.ts";
import type { RuntimeWork } from "../runtime.ts";
import { readMessages, type EngineMessage } from "./engine-messages.ts";

export interface PullOptions extends RuntimeWork {
  /** Whom the registry knows; absent where nobody is needed. */
  credentials?: RegistryCredentials | undefined;
}

const pullTimeoutMs = 60 * 60_000;
const progressIntervalMs = 200;

/**
 * Pulls an image for the platform of the engine; resolves when it is there.
 * @throws SvcError `not_found` when the registry has no such image or wants other credentials; `failed_precondition`
 *   with the engine's words for anything else that it could not pull
 */
export async function pullImage(
  engine: DockerEngine,
  reference: string,
  options: PullOptions,
): Promise<void> {
  const { credentials, signal, onProgress = () => undefined } = options;
  const layers = new Map<string, { current: number; total: number }>();
  let shownAtMs = -Infinity;
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
  await engine.operate(
    `pull ${reference}`,
    async (docker) => {
      const request = {
        fromImage: reference,
        ...(credentials && { authconfig: { ...credentials, serveraddress } }),
      };
      for await (const message of readMessages(await docker.createImage(request))) {
        if (message.error !== undefined) throw pullFailed(reference, message.error);
        show(message);
      }
    },
    { timeoutMs: pullTimeoutMs, signal, of: `the registry ${serveraddress}` },
  );
}

function pullFailed(reference: string, words: string): SvcError {
  const message = `${reference} cannot be pulled: ${words.slice(0, 1_000)}`;
  return /not found|manifest unknown|does not exist|denied|unauthorized/i.test(words)
    ? notFound("image", reference, message)
    : new SvcError("source_failed", message);
}

function sum(
  layers: ReadonlyMap<string, { current: number; total: number }>,
  key: "current" | "total",
): bigint {
  return BigInt([...layers.values()].reduce((bytes, layer) => bytes + layer[key], 0));
}
