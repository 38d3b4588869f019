/** Parses `spec`, `source`, `branch` and `tag` of an install request. */
import { pathToFileURL } from "node:url";
import { invalidField, invalidRequest, type FieldViolation } from "../errors.ts";
import { looksLikeGitUrl, parseGitUrl, redactUrls, splitFragment, type GitUrl } from "./git/git-url.ts";

/** The request fields that select a package. Empty text counts as absent. */
export interface PackageRequest {
  /** `id`, `source/id`, either with `@tag`; a git URL, also `URL#ref:dir`; the absolute path of a directory. */
  spec: string;
  source?: string;
  branch?: string;
  tag?: string;
}

/** Requested version of a repository; no field means the newest. */
export interface RequestedRevision {
  branch?: string;
  tag?: string;
  /** A tag or a branch. */
  ref?: string;
}

export type PackageSpec =
  | { kind: "listed"; name: string; source?: string; revision: RequestedRevision }
  | { kind: "git"; gitUrl: GitUrl; revision: RequestedRevision; directory?: string }
  | { kind: "directory"; path: string };

const sourceName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
/** IDs, and display names without spaces: `Node-RED`. */
const packageName = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/;

/**
 * Parses a request.
 * @throws SvcError `invalid_argument` `invalid_request` with the field; credentials are redacted.
 */
export function parseSpec(request: PackageRequest): PackageSpec {
  const { spec } = request;
  const revision = revisionOf(request);
  if (spec === "")
    throw invalidField("spec", "is empty; specify a package ID, a git URL or an absolute path");
  if (spec.length > 4096) throw invalidField("spec", "is longer than 4096 characters");

  if (/[\u0000-\u001f\u007f]/.test(spec)) throw invalidField("spec", "contains control characters");
  if (spec.startsWith("-")) throw invalidField("spec", `"${redactUrls(spec)}" looks like an option`);
  if (spec.startsWith("/")) return parseDirectory(spec, request, revision);
  if (looksLikeGitUrl(spec)) return parseUrl(spec, request, revision);
  return parseListed(spec, request, revision);
}

function parseDirectory(path: string, request: PackageRequest, revision: RequestedRevision): PackageSpec {
  rejectFields("a directory does not belong to a source", { source: request.source });
  const url = pathToFileURL(path).href;
  rejectFields(`a directory is installed as it is; for a version of its git repository, install ${url}`, {
    branch: revision.branch,
    tag: revision.tag,
  });
  if (path.split("/").includes("..")) throw invalidField("spec", `the path "${path}" contains ".."`);
  return { kind: "directory", path: path.replace(/(?<=.)\/+$/, "") };
}

function parseUrl(spec: string, request: PackageRequest, revision: RequestedRevision): PackageSpec {
  rejectFields("a git URL does not belong to a source", { source: request.source });
  const { url, ref, directory } = splitFragment(spec);
  const result = parseGitUrl(url);
  if ("problem" in result) throw invalidField("spec", `"${redactUrls(spec)}" ${result.problem}`);
  if (ref !== "") {
    rejectFields(`the spec already names "#${ref}"`, { branch: revision.branch, tag: revision.tag });
    if (!isRefName(ref)) throw invalidField("spec", `"${ref}" is not a valid branch or tag name`);
  }
  if (/(?:^|\/)\.\.?(?:\/|$)/.test(directory))
    throw invalidField("spec", `the directory "${directory}" contains "." or ".."`);
  return {
    kind: "git",
    gitUrl: result.gitUrl,
    revision: ref === "" ? revision : { ref },
    ...(directory !== "" && { directory }),
  };
}

/** Advice for an address without a scheme, as browsers show it: `github.com/me/app`. Registries of images have no repositories. */
function adviseUrl(spec: string): string {
  if (/^(?:docker|ghcr|quay)\.io\//.test(spec)) return "";
  return /^[\w-]+(\.[\w-]+)+(\/[\w.-]+){2,}$/.test(spec) ? `; for a git repository: https://${spec}` : "";
}

function parseListed(spec: string, request: PackageRequest, revision: RequestedRevision): PackageSpec {
  const at = spec.indexOf("@");
  const path = at === -1 ? spec : spec.slice(0, at);
  const tag = at === -1 ? undefined : spec.slice(at + 1);
  if (tag !== undefined) {
    rejectFields(`the spec already has a tag ("@${tag}")`, { branch: revision.branch, tag: revision.tag });
    if (!isRefName(tag)) throw invalidField("spec", `"${tag}" is not a valid tag name`);
  }
  const slash = path.indexOf("/");
  const prefix = slash === -1 ? undefined : path.slice(0, slash);
  const name = path.slice(slash + 1);
  if (!packageName.test(name) || (prefix !== undefined && !sourceName.test(prefix))) {
    throw invalidField(
      "spec",
      `"${redactUrls(spec)}" is not a package ID, git URL or absolute path${adviseUrl(spec)}`,
    );
  }
  const source = textOf(request.source);
  if (source !== undefined && !sourceName.test(source))
    throw invalidField("source", `"${source}" is not a valid source name`);
  if (prefix !== undefined && source !== undefined && prefix !== source) {
    throw invalidField("source", `"${source}" differs from the source "${prefix}" in the spec`);
  }
  const chosen = prefix ?? source;
  return {
    kind: "listed",
    name,
    ...(chosen !== undefined && { source: chosen }),
    revision: tag === undefined ? revision : { tag },
  };
}

function revisionOf(request: PackageRequest): RequestedRevision {
  const branch = textOf(request.branch);
  const tag = textOf(request.tag);
  if (branch !== undefined && tag !== undefined)
    rejectFields("specify a branch or a tag, not both", { branch, tag });
  for (const [field, name] of Object.entries({ branch, tag })) {
    if (name !== undefined && !isRefName(name)) {
      throw invalidField(field, `${JSON.stringify(name)} is not a valid ${field} name`);
    }
  }
  return { ...(branch !== undefined && { branch }), ...(tag !== undefined && { tag }) };
}

/**
 * Whether `name` is a valid branch or tag: the rules of git-check-ref-format(1), and nothing that looks like an option.
 */
export function isRefName(name: string): boolean {
  return (
    name.length <= 255 &&
    name.isWellFormed() &&
    /^[^-]/.test(name) &&
    name !== "@" &&
    !/[\p{Cc} ~^:?*[\\]|@\{|\.\./u.test(name) &&
    name.split("/").every((part) => /^[^.]/.test(part) && !part.endsWith(".lock")) &&
    !name.endsWith(".")
  );
}

function textOf(field: string | undefined): string | undefined {
  return field === "" ? undefined : field;
}

function rejectFields(why: string, fields: Readonly<Record<string, string | undefined>>): void {
  const violations = Object.entries(fields)
    .filter(([, value]) => value !== undefined && value !== "")
    .map(([field, value]): FieldViolation => ({
      field,
      description: `"${value ?? ""}" is not allowed: ${why}`,
    }));
  if (violations.length > 0) throw invalidRequest(violations);
}
