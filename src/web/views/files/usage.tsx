import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { DirectoryUsage } from "../../../../gen/svc/v1/file_pb.ts";
import { describeError } from "../../api.ts";
import { Failure } from "../../parts/failure.tsx";
import { Meter, percentOf } from "../../parts/meter.tsx";
import { lastOf } from "../../path-names.ts";
import { plainText } from "../../plain-text.ts";
import { fileTexts as says } from "../../texts/files.ts";
import { formatBytes } from "../../units.ts";
import { linkTo, type FileClient } from "./paths.ts";

/** What is told in this time is shown together. */
const gatherMs = 200;
const mostShown = 50;

interface UsageProps {
  readonly client: FileClient;
  readonly path: string;
}

/** What a directory takes on the disk, as bars: those of the directories in it are opened one by one, and measured then. */
export function Usage({ client, path }: UsageProps) {
  const { directories, whole, entries, failure } = useUsage(client, path);
  const below = directories.reduce((sum, { diskBytes }) => sum + diskBytes, 0n);
  const total = whole?.diskBytes ?? below;
  const largest = directories.toSorted((one, other) => Number(other.diskBytes - one.diskBytes));
  const rest = largest.slice(mostShown);
  return (
    <>
      <Failure says={failure} />
      <p class="quiet" role="status">
        {whole === undefined
          ? failure === "" && says.counting(entries)
          : says.counted(formatBytes(total), Number(whole.entries), Number(whole.failedCount))}
      </p>
      <ul class="usage">
        {largest.slice(0, mostShown).map((directory) => (
          <Below key={directory.path} client={client} of={directory} total={total} />
        ))}
        {rest.length > 0 && (
          <Rest
            label={says.smaller(rest.length)}
            bytes={rest.reduce((sum, { diskBytes }) => sum + diskBytes, 0n)}
            total={total}
          />
        )}
        {whole !== undefined && <Rest label={says.itsOwn} bytes={total - below} total={total} />}
      </ul>
    </>
  );
}

interface BelowProps extends Pick<UsageProps, "client"> {
  readonly of: DirectoryUsage;
  readonly total: bigint;
}

function Below({ client, of: { path, diskBytes }, total }: BelowProps) {
  const isOpen = useSignal(false);
  return (
    <li>
      <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
        <summary>
          <Meter
            label={plainText(lastOf(path))}
            share={percentOf(diskBytes, total)}
            says={formatBytes(diskBytes)}
          />
        </summary>
        {isOpen.value && (
          <>
            <a href={linkTo(path)}>{says.lookInto}</a>
            <Usage client={client} path={path} />
          </>
        )}
      </details>
    </li>
  );
}

function Rest({ label, bytes, total }: { label: string; bytes: bigint; total: bigint }) {
  return (
    <li>
      <Meter label={label} share={percentOf(bytes, total)} says={formatBytes(bytes)} />
    </li>
  );
}

interface Told {
  /** Those right in it, as they became known. */
  readonly directories: readonly DirectoryUsage[];
  /** Undefined until all of it is counted. */
  readonly whole: DirectoryUsage | undefined;
  /** How many files were counted so far. */
  readonly entries: string;
  readonly failure: string;
}

const nothing: Told = { directories: [], whole: undefined, entries: "", failure: "" };

function useUsage(client: FileClient, path: string): Told {
  const told = useSignal(nothing);
  useEffect(() => {
    const over = new AbortController();
    const read = async (): Promise<void> => {
      const directories: DirectoryUsage[] = [];
      let entries = "";
      let shownAt = performance.now();
      for await (const { event } of client.getDiskUsage({ path, depth: 1 }, { signal: over.signal })) {
        if (event.case === "directory") directories.push(event.value);
        else if (event.case === "progress") entries = plainText(event.value.message);
        const whole = event.case === "result" ? event.value : undefined;
        if (whole === undefined && performance.now() - shownAt < gatherMs) continue;
        shownAt = performance.now();
        told.value = { directories: [...directories], whole, entries, failure: "" };
      }
    };
    told.value = nothing;
    read().catch((error: unknown) => {
      if (!over.signal.aborted) told.value = { ...told.value, failure: describeError(error) };
    });
    return () => over.abort();
  }, [client, path]);
  return told.value;
}
