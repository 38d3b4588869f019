/** Paths of the host in the page's address, and their directories. */
import type { Client } from "@connectrpc/connect";
import type { FileEntry, FileService } from "../../../../gen/svc/v1/file_pb.ts";
import { partsOf } from "../../names.ts";
import { pathTo } from "../../route.ts";

export type FileClient = Client<typeof FileService>;

export interface Listing {
  readonly path: string;
  /** Directories first, then by name. */
  readonly entries: readonly FileEntry[];
  /** Whether there are more entries. */
  readonly isCut: boolean;
}

const maxEntries = 10_000;
const entriesAtOnce = 2_000;

/** The page's address for a path. */
export function linkTo(path: string): string {
  return pathTo("files", ...partsOf(path));
}

export function within(directory: string, name: string): string {
  return `${directory === "/" ? "" : directory}/${name}`;
}

export async function readDirectory(client: FileClient, path: string, signal: AbortSignal): Promise<Listing> {
  const entries: FileEntry[] = [];
  let pageToken = "";
  do {
    const page = await client.listDirectory(
      { path, hidden: true, limit: entriesAtOnce, pageToken },
      { signal },
    );
    entries.push(...page.entries);
    pageToken = page.nextPageToken;
  } while (pageToken !== "" && entries.length < maxEntries);
  const isDirectory = ({ type }: FileEntry): boolean => type === "directory";
  const sorted = [...entries.filter(isDirectory), ...entries.filter((entry) => !isDirectory(entry))];
  return { path, entries: sorted, isCut: pageToken !== "" };
}
