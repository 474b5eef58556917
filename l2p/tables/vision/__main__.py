"""`python -m l2p.tables.vision IMAGES --out FEATURES.parquet`."""

from l2p.tables.vision.images import main

raise SystemExit(main())
