package store

// split cuts items into batches of at most MaxBatch items and, unless a single item
// is larger, maxBatchBytes.
func split[T any](items []T, size func(*T) int) [][]*T {
	var batches [][]*T
	var batch []*T
	bytes := 0
	for i := range items {
		n := size(&items[i])
		if len(batch) == MaxBatch || (len(batch) > 0 && bytes+n > maxBatchBytes) {
			batches = append(batches, batch)
			batch, bytes = nil, 0
		}
		batch = append(batch, &items[i])
		bytes += n
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}

// groupBy sorts items by their key; keys are in the order in which they came.
func groupBy[T any, K comparable](items []T, key func(T) K) (keys []K, groups map[K][]T) {
	groups = map[K][]T{}
	for _, item := range items {
		k := key(item)
		if _, ok := groups[k]; !ok {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], item)
	}
	return keys, groups
}
