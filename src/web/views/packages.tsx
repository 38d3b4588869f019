import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { SourceService, type ListedPackage } from "../../../gen/svc/v1/source_pb.ts";
import { useLive } from "../live.ts";
import { Failure } from "../parts/failure.tsx";
import { TextField, typedInto } from "../parts/field.tsx";
import { OutsideLink } from "../parts/outside-link.tsx";
import { Text, Texts } from "../parts/text.tsx";
import { plainText, sentence } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { packageTexts as says } from "../texts/packages.ts";
import { formatBytes } from "../units.ts";
import type { ViewProps } from "../view-props.ts";

/** Whoever types is not asked about each letter. */
const searchAfterMs = 200;
const mostShown = 60;

interface Props extends Pick<ViewProps, "api" | "node"> {
  /** Takes over what one chose. */
  onChoose: (spec: string) => void;
}

/** What the sources have to install, as cards one can search. */
export function Packages({ api, node, onChoose }: Props) {
  const client = useMemo(() => api.client(SourceService), [api]);
  const typed = useSignal("");
  const query = useSignal("");
  useEffect(() => {
    const timer = setTimeout(() => (query.value = typed.value), searchAfterMs);
    return () => clearTimeout(timer);
  }, [typed.value]);
  const { value, failure, again } = useLive(
    node,
    [],
    (signal) => client.searchPackages({ query: query.value, limit: mostShown }, { signal }),
    [client, query.value],
  );
  return (
    <section aria-labelledby="packages">
      <h2 id="packages">{says.title}</h2>
      <TextField label={says.search} {...typedInto(typed)} input={{ type: "search" }} />
      <Failure says={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {value?.errors.map(({ source, error }) => (
        <p key={source} class="notice bad">
          <Text of={says.failed(source, sentence(error))} />{" "}
          <button type="button" onClick={again}>
            {texts.readAgain}
          </button>
        </p>
      ))}
      {value !== undefined && (
        <>
          <p class="quiet" role="status">
            {value.total === 0 ? says.none : says.counted(value.packages.length, value.total)}{" "}
            <a href={pathTo("sources")}>{says.sources}</a>
          </p>
          <ul class="cards packages" aria-label={says.title}>
            {value.packages.map((found) => (
              <Card key={found.spec} of={found} onChoose={onChoose} />
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Card({ of, onChoose }: Pick<Props, "onChoose"> & { of: ListedPackage }) {
  const { spec, name, summary, homepage, license, runtime, permissions, sizeBytes } = of;
  const facts = [
    license,
    texts.runtimes[runtime] ?? runtime,
    sizeBytes === undefined ? "" : says.takes(formatBytes(sizeBytes)),
  ];
  return (
    <li class="card">
      <h3>
        <Text of={name} />
      </h3>
      <p>
        <Text of={summary} />
      </p>
      <p class="quiet">
        <Text of={facts.filter((fact) => fact !== "").join(" · ")} />{" "}
        {homepage !== "" && <OutsideLink to={homepage} />}
      </p>
      {permissions.length > 0 && (
        <>
          <p>{says.asksFor}</p>
          <Texts of={permissions} />
        </>
      )}
      <p class="quiet">
        <code>
          <Text of={spec} />
        </code>
      </p>
      <button type="button" aria-label={says.installOf(plainText(spec))} onClick={() => onChoose(spec)}>
        {says.install}
      </button>
    </li>
  );
}
