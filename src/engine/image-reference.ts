/** Parses image names as the engine and registries do (grammar of the distribution project). */
import { invalidField } from "../errors.ts";

export interface ImageReference {
  /** Registry with its port, such as `docker.io` or `127.0.0.1:5000`. */
  readonly host: string;
  /** Such as `library/nginx`. */
  readonly repository: string;
  /** Absent for a name with only a digest. */
  readonly tag?: string;
  /** `sha256:…` */
  readonly digest?: string;
}

const defaultHost = "docker.io";
const defaultTag = "latest";

const label = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?";
const hostPattern = new RegExp(`^(?:${label}(?:\\.${label})*|\\[[0-9A-Fa-f:]+\\])(?::[0-9]{1,5})?$`);
const repositoryPattern =
  /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const tagPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const digestPattern = /^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/;
const maxNameLength = 255;

/** Fills in omitted parts: `docker.io`, `library/`, `latest`. @throws SvcError `invalid_argument` */
export function parseImageReference(text: string): ImageReference {
  const at = text.indexOf("@");
  const digest = at === -1 ? undefined : text.slice(at + 1);
  const named = at === -1 ? text : text.slice(0, at);
  const colon = named.lastIndexOf(":");
  // A colon before the last slash belongs to a port.
  const hasTag = colon > named.lastIndexOf("/");
  const tag = hasTag ? named.slice(colon + 1) : undefined;
  const { host, repository } = splitName(hasTag ? named.slice(0, colon) : named);
  const isValid =
    hostPattern.test(host) &&
    repositoryPattern.test(repository) &&
    host.length + 1 + repository.length <= maxNameLength &&
    (tag === undefined || tagPattern.test(tag)) &&
    (digest === undefined || digestPattern.test(digest));
  if (!isValid) {
    throw invalidField(
      "image",
      `${JSON.stringify(text)} must be a name such as nginx:1.27 or registry.example:5000/team/web:2`,
    );
  }
  return {
    host,
    repository,
    ...(tag !== undefined && { tag }),
    ...(tag === undefined && digest === undefined && { tag: defaultTag }),
    ...(digest !== undefined && { digest }),
  };
}

function splitName(name: string): { host: string; repository: string } {
  const slash = name.indexOf("/");
  const first = name.slice(0, Math.max(slash, 0));
  // Only these distinguish a host from the first part of a repository.
  const isHost = /[.:[]/.test(first) || first === "localhost" || first !== first.toLowerCase();
  const host = isHost ? first : defaultHost;
  const rest = isHost ? name.slice(slash + 1) : name;
  if (host !== defaultHost && host !== "index.docker.io") return { host, repository: rest };
  return { host: defaultHost, repository: rest.includes("/") ? rest : `library/${rest}` };
}

/** The full name, with all parts. */
export function formatImageReference({ host, repository, tag, digest }: ImageReference): string {
  return `${host}/${repository}${tag === undefined ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`;
}

/** Whether the registry is on this host, which makes plain HTTP acceptable. */
export function isLoopbackHost(host: string): boolean {
  const name = host.replace(/:\d+$/, "");
  return name === "localhost" || /^127(?:\.\d{1,3}){3}$/.test(name) || name === "[::1]";
}
