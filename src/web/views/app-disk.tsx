import { useSignal } from "@preact/signals";
import { useEffect, useId, useMemo } from "preact/hooks";
import type { App, AppDisk } from "../../../gen/svc/v1/app_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { describeError, type Api } from "../api.ts";
import { Failure } from "../parts/failure.tsx";
import { Meter, percentOf } from "../parts/meter.tsx";
import { Text } from "../parts/text.tsx";
import { plainText, sentence } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";
import { Usage } from "./files/usage.tsx";

const { disk } = texts;

interface Props {
  readonly api: Api;
  readonly app: App;
}

/** What an app takes on the disk, measured when somebody wants to see it. */
export function AppDiskView({ api, app }: Props) {
  const id = useId();
  const isOpen = useSignal(false);
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>{disk.title}</h2>
      <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
        <summary>{disk.measure}</summary>
        {isOpen.value && <Picture api={api} app={app} />}
      </details>
    </section>
  );
}

function Picture({ api, app: { id, directory } }: Props) {
  const files = useMemo(() => api.client(FileService), [api]);
  const found = useSignal<AppDisk | undefined>(undefined);
  const failure = useSignal("");
  useEffect(() => {
    const over = new AbortController();
    api.apps.getAppDisk({ id }, { signal: over.signal }).then(
      (read) => (found.value = read),
      (error: unknown) => {
        if (!over.signal.aborted) failure.value = describeError(error);
      },
    );
    return () => over.abort();
  }, [api, id]);
  return (
    <>
      <Failure says={failure.value} />
      {found.value === undefined ? (
        failure.value === "" && <p>{texts.loading}</p>
      ) : (
        <Parts of={found.value} />
      )}
      <h3>{disk.directory}</h3>
      <Usage client={files} path={directory} />
    </>
  );
}

function Parts({ of }: { of: AppDisk }) {
  const { dataBytes, repositoryBytes, imageBytes, volumes, totalBytes, unknown } = of;
  const parts: readonly (readonly [label: string, bytes: bigint])[] = [
    [disk.data, dataBytes],
    ...volumes.map(({ name, sizeBytes }) => [disk.volume(plainText(name)), sizeBytes] as const),
    [disk.program, repositoryBytes],
    ...(imageBytes === undefined ? [] : [[disk.images, imageBytes] as const]),
  ];
  return (
    <>
      <p>{disk.together(formatBytes(totalBytes))}</p>
      {unknown !== undefined && (
        <p class="notice">
          <Text of={sentence(unknown)} />
        </p>
      )}
      {parts.map(([label, bytes]) => (
        <Meter key={label} label={label} share={percentOf(bytes, totalBytes)} says={formatBytes(bytes)} />
      ))}
    </>
  );
}
