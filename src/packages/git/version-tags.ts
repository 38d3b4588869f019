/** Reads versions from tags as projects write them, such as `v1.10`, `release-1.2.3` and `@acme/web@1.4.0`. */
import semver from "semver";

/** A tag that is a version. */
interface TaggedVersion {
  /** The text before the version, without `v`: only tags with the same prefix are compared. */
  readonly prefix: string;
  readonly numbers: readonly number[];
  /** The pre-release and build parts, with the numbers 0.0.0. */
  readonly rest: semver.SemVer;
}

/** The version needs a `v`, or two numbers. The prefix is one word, or ends with a separator. */
const form =
  /^(?<prefix>|[A-Za-z]+|.*?[-_/@])(?<numbers>[vV]\d{1,15}|[vV]?\d{1,15}(?:[._]\d{1,15}){1,5})(?<rest>(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)$/;

/** Prefixes of versions that are not stable. */
const unstable = /(?:^|[-_/])(?:alpha|beta|dev|nightly|pre|preview|rc|snapshot|test)[-_/]?$/i;
/** The pattern above reads a tag several times. */
const maxLength = 128;

function readVersion(tag: string): TaggedVersion | undefined {
  if (tag.length > maxLength) return undefined;
  const { prefix, numbers, rest } = form.exec(tag)?.groups ?? {};
  if (prefix === undefined || numbers === undefined || unstable.test(prefix)) return undefined;
  const version = semver.parse(`0.0.0${rest ?? ""}`, { loose: true });
  if (version === null) return undefined;
  return { prefix, numbers: numbers.replace(/^v/i, "").split(/[._]/).map(Number), rest: version };
}

function compare(a: TaggedVersion, b: TaggedVersion): number {
  for (let at = 0; at < Math.max(a.numbers.length, b.numbers.length); at++) {
    const difference = (a.numbers[at] ?? 0) - (b.numbers[at] ?? 0);
    if (difference !== 0) return difference;
  }
  // A complete version is more specific than a tag such as v1, which projects move.
  return a.rest.compareBuild(b.rest) || a.numbers.length - b.numbers.length;
}

/** Whether tag `a` is a higher version than tag `b`; `undefined` unless both are versions with the same prefix. */
export function isNewerTag(a: string, b: string): boolean | undefined {
  const [versionA, versionB] = [readVersion(a), readVersion(b)];
  if (versionA === undefined || versionB?.prefix !== versionA.prefix) return undefined;
  return compare(versionA, versionB) > 0;
}

/** Finds the highest version for each prefix; ignores pre-releases and other tags. */
export class NewestTags {
  readonly #newest = new Map<string, { tag: string; version: TaggedVersion }>();

  consider(tag: string): void {
    const version = readVersion(tag);
    if (version === undefined || version.rest.prerelease.length > 0) return;
    const known = this.#newest.get(version.prefix);
    if (known === undefined || compare(version, known.version) > 0)
      this.#newest.set(version.prefix, { tag, version });
  }

  /** The newest tag with the same prefix. */
  like(tag: string): string | undefined {
    return this.#newest.get(readVersion(tag)?.prefix ?? "")?.tag;
  }

  /**
   * The newest tag of a package. Its prefix is the name of the package's directory; if there is no such tag, the tag
   * has no prefix, or the only prefix of the repository.
   */
  of(directory: string): string | undefined {
    const name = directory.slice(directory.lastIndexOf("/") + 1);
    const named = [...this.#newest].find(([prefix]) => name !== "." && wordOf(prefix) === name)?.[1].tag;
    const [only, another] = this.#newest.values();
    return named ?? this.#newest.get("")?.tag ?? (another === undefined ? only?.tag : undefined);
  }
}

/** `web` of `web-`, `web/` and `@acme/web@`. */
function wordOf(prefix: string): string {
  return prefix.replace(/[-_/@]+$/, "").replace(/^.*\//, "");
}
