"""`python -m l2p.vision IMAGES --out FEATURES.parquet`."""

from l2p.vision.images import main

raise SystemExit(main())
