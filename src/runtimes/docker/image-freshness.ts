/** Whether the registry has a newer image under the same name. */
import type { ImageInspectInfo } from "dockerode";
import { parseImageReference } from "../../docker/image-reference.ts";
import { remoteImage } from "../../docker/registry-client.ts";
import { SvcError } from "../../errors.ts";
import type { RunnableApp, RuntimeImage } from "../runtime.ts";
import { builtPrefix, type CredentialsOf } from "./app-images.ts";
import { localDigests } from "./image-digests.ts";

export type FreshnessResult = Pick<RuntimeImage, "remoteDigest" | "freshness" | "freshnessReason">;

/** Never throws for a registry that does not answer: that is `unknown`, with the reason. */
export async function checkFreshness(
  credentialsOf: CredentialsOf,
  app: RunnableApp,
  reference: string,
  local: ImageInspectInfo | undefined,
  signal: AbortSignal | undefined,
): Promise<FreshnessResult> {
  if (reference.startsWith(builtPrefix)) return unknown("it was built here, from the app's checkout");
  if (local === undefined) return unknown("the image is not on this host");
  const digests = localDigests(local);
  const pinned = /@(sha256:[0-9a-f]{64})$/.exec(reference)?.[1];
  if (pinned !== undefined) return { freshness: "current", remoteDigest: pinned };
  if (digests.length === 0) return unknown("the image did not come from a registry");
  try {
    const { Os: os, Architecture: architecture } = local;
    const variant = (local as { Variant?: string }).Variant ?? "";
    const platform = { os, architecture, variant };
    const credentials = await credentialsOf(app.ownerUid, reference);
    const remote = await remoteImage(reference, { platform, credentials, signal });
    // The engine remembers what it pulled by: the index or the image, and one for each registry it came from.
    const isCurrent = digests.includes(remote.digest) || digests.includes(remote.platformDigest);
    return { remoteDigest: remote.digest, freshness: isCurrent ? "current" : "outdated" };
  } catch (error) {
    if (signal?.aborted === true || !(error instanceof SvcError)) throw error;
    return unknown(error.message);
  }
}

/** The tag of a reference; `undefined` for a digest. */
export function tagOf(reference: string): string | undefined {
  const { tag, digest } = parseImageReference(reference);
  return digest === undefined ? tag : undefined;
}

/**
 * Why a reference always means the same image: it names a digest, or its tag states a version or a date.
 * A number alone (`16`) names a line of versions, as `latest` and `stable` do: those move.
 */
export function pinnedBy(reference: string): string | undefined {
  if (reference.includes("@")) return "its manifest names a digest";
  const tag = tagOf(reference) ?? "";
  const statesVersion = /^v?\d+(\.\d+)+([-_.+].*)?$/i.test(tag) || /(^|[-.])\d{8}([-.]|$)/.test(tag);
  const statesCommit = /^(sha-|git-)?[0-9a-f]{7,40}$/i.test(tag) && /[a-f]/i.test(tag) && /\d/.test(tag);
  return statesVersion || statesCommit ? `its tag "${tag}" states a version` : undefined;
}

function unknown(reason: string): FreshnessResult {
  return { freshness: "unknown", freshnessReason: reason };
}
