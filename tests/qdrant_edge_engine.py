"""Requests of Qdrant's REST interface, as the models of qdrant-client, run by Qdrant's own engine (qdrant-edge-py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import qdrant_edge as edge
from qdrant_client.http import models as rest

_DEFAULT_LINKS, _DEFAULT_EFFORT, _DEFAULT_SCAN_KB = 16, 100, 10_000

_INDEXES: dict[str, Any] = {
    "keyword": edge.KeywordIndexParams,
    "integer": edge.IntegerIndexParams,
    "float": edge.FloatIndexParams,
    "datetime": edge.DatetimeIndexParams,
}

Filter = rest.Filter | None


class EdgeCollection:
    """A collection: its settings as they were sent, and a shard of the engine."""

    def __init__(self, folder: Path, settings: rest.CreateCollection) -> None:
        """Create the shard. Raises `ValueError` for settings that this class does not translate."""
        vectors = settings.vectors
        if not isinstance(vectors, rest.VectorParams) or vectors.multivector_config is not None:
            raise ValueError("the stand-in has only collections with one dense vector")
        folder.mkdir(parents=True)
        hnsw = settings.hnsw_config or rest.HnswConfigDiff()
        quantization: dict[str, Any] = {}
        if isinstance(settings.quantization_config, rest.ScalarQuantization):
            scalar = settings.quantization_config.scalar
            quantization["quantization_config"] = edge.ScalarQuantizationConfig(
                edge.ScalarType.Int8, quantile=scalar.quantile, always_ram=scalar.always_ram
            )
        elif isinstance(settings.quantization_config, rest.BinaryQuantization):
            quantization["quantization_config"] = edge.BinaryQuantizationConfig()
        self.settings = settings
        self.indexes: dict[str, rest.PayloadIndexInfo] = {}
        self._shard = edge.EdgeShard.create(
            str(folder),
            edge.EdgeConfig(
                vectors=edge.EdgeVectorParams(vectors.size, _DISTANCES[vectors.distance]),
                hnsw_config=edge.HnswIndexConfig(
                    m=_DEFAULT_LINKS if hnsw.m is None else hnsw.m,
                    ef_construct=hnsw.ef_construct or _DEFAULT_EFFORT,
                    full_scan_threshold=_DEFAULT_SCAN_KB if hnsw.full_scan_threshold is None else hnsw.full_scan_threshold,
                    payload_m=hnsw.payload_m,
                ),
                wal_enabled=False,
                **quantization,
            ),
        )

    def close(self) -> None:
        """Release the files."""
        self._shard.close()

    def optimize(self) -> None:
        """Build the graphs. The server does so in the background."""
        self._shard.optimize()

    def describe(self) -> rest.CollectionInfo:
        """Return what the server returns for the collection."""
        info = self._shard.info()
        settings = self.settings
        hnsw = settings.hnsw_config or rest.HnswConfigDiff()
        return rest.CollectionInfo(
            status=rest.CollectionStatus.GREEN,
            optimizer_status=rest.OptimizersStatusOneOf.OK,
            points_count=info.points_count,
            indexed_vectors_count=info.indexed_vectors_count,
            segments_count=info.segments_count,
            config=rest.CollectionConfig(
                params=rest.CollectionParams(vectors=settings.vectors, replication_factor=settings.replication_factor),
                hnsw_config=rest.HnswConfig(
                    m=_DEFAULT_LINKS if hnsw.m is None else hnsw.m,
                    ef_construct=hnsw.ef_construct or _DEFAULT_EFFORT,
                    full_scan_threshold=_DEFAULT_SCAN_KB,
                    payload_m=hnsw.payload_m,
                ),
                optimizer_config=rest.OptimizersConfig(default_segment_number=0, flush_interval_sec=5),
                metadata=settings.metadata,
            ),
            payload_schema=self.indexes,
        )

    def create_index(self, request: rest.CreateFieldIndex) -> None:
        """Create an index of the payload."""
        schema = cast("Any", request.field_schema)
        kind = str(schema.type.value)
        options = schema.model_dump(exclude={"type"}, exclude_none=True)
        self._shard.update(edge.UpdateOperation.create_field_index(request.field_name, _INDEXES[kind](**options)))
        self.indexes[request.field_name] = rest.PayloadIndexInfo(data_type=rest.PayloadSchemaType(kind), params=schema, points=0)

    def upsert(self, request: rest.PointsList) -> None:
        """Write points."""
        points = [edge.Point(cast("Any", point.id), cast("Any", point.vector), point.payload) for point in request.points]
        self._shard.update(edge.UpdateOperation.upsert_points(points))

    def delete(self, selector: rest.PointsSelector) -> None:
        """Delete points."""
        if isinstance(selector, rest.FilterSelector):
            self._require_indexes(selector.filter)
            self._shard.update(edge.UpdateOperation.delete_points_by_filter(_convert_filter(selector.filter)))
        else:
            self._shard.update(edge.UpdateOperation.delete_points(cast("Any", selector.points)))

    def query(self, request: rest.QueryRequest) -> rest.QueryResponse:
        """Return the nearest points."""
        self._require_indexes(request.filter)
        points = self._shard.query(
            edge.QueryRequest(
                limit=request.limit or 10,
                query=edge.Query.Nearest(cast("Any", request.query)),
                filter=_convert_optional(request.filter),
                params=_convert_parameters(request.params or rest.SearchParams()),
                with_payload=cast("Any", request.with_payload),
            )
        )
        return rest.QueryResponse(
            points=[rest.ScoredPoint(id=str(point.id), version=point.version, score=point.score, payload=point.payload) for point in points]
        )

    def count(self, request: rest.CountRequest) -> rest.CountResult:
        """Return the number of points."""
        self._require_indexes(request.filter)
        is_exact = request.exact is not False
        return rest.CountResult(count=self._shard.count(edge.CountRequest(exact=is_exact, filter=_convert_optional(request.filter))))

    def scroll(self, request: rest.ScrollRequest) -> rest.ScrollResult:
        """Return a page of points."""
        self._require_indexes(request.filter)
        records, next_offset = self._shard.scroll(
            edge.ScrollRequest(
                offset=cast("Any", request.offset),
                limit=request.limit or 10,
                filter=_convert_optional(request.filter),
                with_payload=cast("Any", request.with_payload),
                with_vector=cast("Any", request.with_vector),
            )
        )
        points = [rest.Record(id=str(record.id), payload=record.payload, vector=cast("Any", record.vector)) for record in records]
        return rest.ScrollResult(points=points, next_page_offset=None if next_offset is None else str(next_offset))

    def _require_indexes(self, condition: Filter) -> None:
        """Do as the strict mode of the server: raise `ValueError` for a condition whose field has no index of its kind."""
        strict = self.settings.strict_mode_config
        if condition is None or strict is None or not strict.enabled:
            return
        for field, kinds in _iter_fields(condition):
            info = self.indexes.get(field)
            if info is None or (kinds and info.data_type.value not in kinds):
                raise ValueError(
                    f'Bad request: Index required but not found for "{field}" of one of the following types: [{", ".join(kinds)}]. '
                    "Help: Create an index for this key or use a different filter."
                )


_DISTANCES = {rest.Distance.DOT: edge.Distance.Dot, rest.Distance.COSINE: edge.Distance.Cosine}


def _conditions(group: object) -> Sequence[Any]:
    return [] if group is None else cast("list[Any]", group) if isinstance(group, list) else [group]


def _iter_fields(condition: rest.Filter) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each field of a filter with the kinds of index that serve its condition; without kinds, any does."""
    for group in (condition.must, condition.should, condition.must_not):
        for part in _conditions(group):
            if isinstance(part, rest.Filter):
                yield from _iter_fields(part)
            elif isinstance(part, rest.IsEmptyCondition):
                yield part.is_empty.key, ()
            elif isinstance(part, rest.FieldCondition):
                yield part.key, _find_kinds(part)


def _find_kinds(part: rest.FieldCondition) -> tuple[str, ...]:
    if isinstance(part.range, rest.DatetimeRange):
        return ("datetime",)
    if part.range is not None:
        return ("integer", "float")
    value = part.match.any if isinstance(part.match, rest.MatchAny) else getattr(part.match, "value", None)
    one = cast("list[Any]", value)[0] if isinstance(value, list) else value
    return ("integer",) if isinstance(one, int) else ("keyword", "uuid")


def _convert_optional(condition: Filter) -> edge.Filter | None:
    return None if condition is None else _convert_filter(condition)


def _convert_filter(condition: rest.Filter) -> edge.Filter:
    groups = (condition.must, condition.should, condition.must_not)
    must, should, must_not = (None if group is None else [_convert(part) for part in _conditions(group)] for group in groups)
    return edge.Filter(must=must, should=should, must_not=must_not)


def _convert(part: object) -> Any:  # noqa: ANN401 - the engine has a class for each condition and no base class
    if isinstance(part, rest.Filter):
        return _convert_filter(part)
    if isinstance(part, rest.IsEmptyCondition):
        return edge.IsEmptyCondition(part.is_empty.key)
    if isinstance(part, rest.HasIdCondition):
        return edge.HasIdCondition(set(cast("Any", part.has_id)))
    if not isinstance(part, rest.FieldCondition):
        raise TypeError(f"the stand-in does not translate {part!r}")
    if isinstance(part.match, rest.MatchAny):
        return edge.FieldCondition(part.key, match=edge.MatchAny(cast("Any", part.match.any)))
    if isinstance(part.match, rest.MatchValue):
        return edge.FieldCondition(part.key, match=edge.MatchValue(part.match.value))
    limits = cast("Any", part.range)
    if isinstance(limits, rest.DatetimeRange):
        return edge.FieldCondition(part.key, range=edge.RangeDateTime(**_format_limits(limits)))
    return edge.FieldCondition(part.key, range=edge.RangeFloat(**limits.model_dump(exclude_none=True)))


def _format_limits(limits: rest.DatetimeRange) -> dict[str, str]:
    return {name: limit.isoformat() for name, limit in limits.model_dump(exclude_none=True).items()}


def _convert_parameters(parameters: rest.SearchParams) -> edge.SearchParams:
    quantization = parameters.quantization
    return edge.SearchParams(
        hnsw_ef=parameters.hnsw_ef,
        exact=bool(parameters.exact),
        acorn=None if parameters.acorn is None else edge.AcornSearchParams(enable=bool(parameters.acorn.enable)),
        quantization=None
        if quantization is None
        else edge.QuantizationSearchParams(
            ignore=bool(quantization.ignore), rescore=quantization.rescore, oversampling=quantization.oversampling
        ),
    )
