import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { DirectoryUsage } from "../../../../gen/svc/v1/file_pb.ts";
import { describeError } from "../../api.ts";
import { Failure } from "../../parts/failure.tsx";
import { Meter, percentOf } from "../../parts/meter.tsx";
import { lastOf } from "../../names.ts";
import { plainText } from "../../plain-text.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import { formatBytes } from "../../units.ts";
import { linkTo, type FileClient } from "./paths.ts";

/** Milliseconds: reports within this time are rendered together. */
const batchMs = 200;
const maxShown = 50;

interface UsageProps {
  readonly client: FileClient;
  readonly path: string;
}

/** Disk usage of a directory, as bars. A subdirectory is measured when it is opened. */
export function Usage({ client, path }: UsageProps) {
  const { directories, whole, entries, failure } = useUsage(client, path);
  const below = directories.reduce((sum, { diskBytes }) => sum + diskBytes, 0n);
  const total = whole?.diskBytes ?? below;
  const largest = directories.toSorted((one, other) => Number(other.diskBytes - one.diskBytes));
  const rest = largest.slice(maxShown);
  return (
    <>
      <Failure message={failure} />
      <p class="quiet" role="status">
        {whole === undefined
          ? failure === "" && labels.counting(entries)
          : labels.counted(formatBytes(total), Number(whole.entries), Number(whole.failedCount))}
      </p>
      <ul class="usage">
        {largest.slice(0, maxShown).map((directory) => (
          <Below key={directory.path} client={client} of={directory} total={total} />
        ))}
        {rest.length > 0 && (
          <Rest
            label={labels.smaller(rest.length)}
            bytes={rest.reduce((sum, { diskBytes }) => sum + diskBytes, 0n)}
            total={total}
          />
        )}
        {whole !== undefined && <Rest label={labels.itsOwn} bytes={total - below} total={total} />}
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
            text={formatBytes(diskBytes)}
          />
        </summary>
        {isOpen.value && (
          <>
            <a href={linkTo(path)}>{labels.lookInto}</a>
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
      <Meter label={label} share={percentOf(bytes, total)} text={formatBytes(bytes)} />
    </li>
  );
}

interface UsageState {
  /** Direct subdirectories, in order of arrival. */
  readonly directories: readonly DirectoryUsage[];
  /** Undefined until counting has finished. */
  readonly whole: DirectoryUsage | undefined;
  /** Number of files counted so far. */
  readonly entries: string;
  readonly failure: string;
}

const nothing: UsageState = { directories: [], whole: undefined, entries: "", failure: "" };

function useUsage(client: FileClient, path: string): UsageState {
  const state = useSignal(nothing);
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
        if (whole === undefined && performance.now() - shownAt < batchMs) continue;
        shownAt = performance.now();
        state.value = { directories: [...directories], whole, entries, failure: "" };
      }
    };
    state.value = nothing;
    read().catch((error: unknown) => {
      if (!over.signal.aborted) state.value = { ...state.value, failure: describeError(error) };
    });
    return () => over.abort();
  }, [client, path]);
  return state.value;
}
