/** Whether the registry has a newer image under the same name. */
import type { ImageInspectInfo } from "dockerode";
import { parseImageReference } from "../../docker/image-reference.ts";
import { remoteImage } from "../../docker/registry-client.ts";
import { SvcError } from "../../errors.ts";
import type { RunnableApp, RuntimeImage } from "../runtime.ts";
import { type AppImages, type CredentialsOf } from "./app-images.ts";
import { builtPrefix } from "./foreign-images.ts";
import { digestOf, localDigests } from "./image-digests.ts";

const versionLabel = "org.opencontainers.image.version";

export type FreshnessResult = Pick<
  RuntimeImage,
  "remoteDigest" | "freshness" | "freshnessReason" | "isUnanswered"
>;

export interface FreshnessOptions {
  credentialsOf: CredentialsOf;
  /** Whether the engine takes a registry for insecure; `host` as images name it. */
  isInsecure: (host: string) => Promise<boolean>;
}

/** Never throws for a registry that does not answer: that is `unknown`, with the reason. */
async function checkFreshness(
  { credentialsOf, isInsecure }: FreshnessOptions,
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
    const remote = await remoteImage(reference, {
      ...{ platform, credentials, signal, known: digests },
      isInsecure: await isInsecure(parseImageReference(reference).host),
    });
    // The engine remembers what it pulled by: the index or the image, and one for each registry it came from. An index of which
    // another platform's image has changed has another digest, and the same image for this one.
    const isCurrent =
      digests.includes(remote.digest) ||
      digests.includes(remote.platformDigest) ||
      remote.configDigest === local.Id;
    return { remoteDigest: remote.digest, freshness: isCurrent ? "current" : "outdated" };
  } catch (error) {
    if (signal?.aborted === true || !(error instanceof SvcError)) throw error;
    return { ...unknown(error.message), isUnanswered: true };
  }
}

/** What is shown of one image of an app. */
export async function describeImage(
  options: FreshnessOptions & { images: Pick<AppImages, "inspect"> },
  app: RunnableApp,
  reference: string,
  { checkRemote, signal }: { checkRemote: boolean; signal?: AbortSignal },
): Promise<RuntimeImage> {
  const local = await options.images.inspect(reference, signal);
  const labels = local?.Config.Labels as Readonly<Record<string, string>> | null | undefined;
  const version = labels?.[versionLabel] ?? tagOf(reference);
  return {
    reference,
    ...(version !== undefined && { version }),
    ...(local && { localDigest: digestOf(local) }),
    ...(checkRemote && (await checkFreshness(options, app, reference, local, signal))),
  };
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
