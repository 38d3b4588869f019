/** Checks whether the registry has a newer image under the same name. */
import type { ImageInspectInfo } from "dockerode";
import { parseImageReference } from "../../engine/image-reference.ts";
import { remoteImage } from "../../engine/registry-client.ts";
import type { RegistryTransport } from "../../engine/registry-transport.ts";
import { SvcError } from "../../errors.ts";
import type { RuntimeImage } from "../capabilities.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { AppImages } from "./app-images.ts";
import type { CredentialsOf } from "./registry-images.ts";
import { builtPrefix, digestOf, localDigests } from "./image-names.ts";

const versionLabel = "org.opencontainers.image.version";

export type FreshnessResult = Pick<
  RuntimeImage,
  "remoteDigest" | "freshness" | "freshnessReason" | "isUnanswered"
>;

export interface FreshnessOptions {
  credentialsOf: CredentialsOf;
  /** How the engine reaches a registry; `host` as in image names. */
  transportOf: (host: string) => Promise<RegistryTransport>;
}

interface DescribeOptions extends FreshnessOptions {
  images: Pick<AppImages, "usable" | "requireRegistry">;
}

/** Never throws if the registry does not respond: the result is `unknown` with the reason. */
async function checkFreshness(
  { images, credentialsOf, transportOf }: DescribeOptions,
  app: RunnableApp,
  reference: string,
  local: ImageInspectInfo | undefined,
  signal: AbortSignal | undefined,
): Promise<FreshnessResult> {
  if (reference.startsWith(builtPrefix)) return unknown("the image was built here, from the app's checkout");
  if (local === undefined) return unknown("the image is not on this host");
  const digests = localDigests(local);
  const pinned = /@(sha256:[0-9a-f]{64})$/.exec(reference)?.[1];
  if (pinned !== undefined) return { freshness: "current", remoteDigest: pinned };
  if (digests.length === 0) return unknown("the image did not come from a registry");
  try {
    images.requireRegistry(app.ownerUid, reference);
    const { Os: os, Architecture: architecture } = local;
    const variant = (local as { Variant?: string }).Variant ?? "";
    const platform = { os, architecture, variant };
    const credentials = await credentialsOf(app.ownerUid, reference);
    const remote = await remoteImage(reference, {
      ...{ platform, credentials, signal, known: digests },
      transport: await transportOf(parseImageReference(reference).host),
    });
    // The engine records the digest that it pulled by, of an index or an image, one per registry. If another
    // platform's image changes, the index has a new digest, but this platform's image is the same.
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

/** Describes one image of an app. */
export async function describeImage(
  options: DescribeOptions,
  app: RunnableApp,
  reference: string,
  { checkRemote, signal }: { checkRemote: boolean; signal?: AbortSignal },
): Promise<RuntimeImage> {
  const local = await options.images.usable(app.ownerUid, reference, signal);
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
 * Why a reference always refers to the same image: it contains a digest, or its tag states a version or a date. A tag
 * that is only a number (`16`) names a release line and moves, as `latest` and `stable` do.
 */
export function pinnedBy(reference: string): string | undefined {
  if (reference.includes("@")) return "the manifest names a digest";
  const tag = tagOf(reference) ?? "";
  const statesVersion = /^v?\d+(\.\d+)+([-_.+].*)?$/i.test(tag) || /(^|[-.])\d{8}([-.]|$)/.test(tag);
  const statesCommit = /^(sha-|git-)?[0-9a-f]{7,40}$/i.test(tag) && /[a-f]/i.test(tag) && /\d/.test(tag);
  return statesVersion || statesCommit ? `the tag "${tag}" states a version` : undefined;
}

function unknown(reason: string): FreshnessResult {
  return { freshness: "unknown", freshnessReason: reason };
}
